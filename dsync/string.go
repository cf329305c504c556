package dsync

import (
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// String returns the kind and the key, such as `mutex "invoices"`.
func (m *Mutex) String() string { return named(m.kind, m.key) }

// String returns the kind and the key, such as `rwmutex "invoices"`.
func (rw *RWMutex) String() string { return rw.w.String() }

// String returns the kind and the key, such as `semaphore "workers"`.
func (m *Semaphore) String() string { return named(driver.KindSemaphore, m.key) }

// String returns the kind and the key, such as `once "schema v7"`.
func (o *Once) String() string { return named(driver.KindOnce, o.key) }

func named(kind driver.Kind, key string) string { return fmt.Sprintf("%s %q", kind, key) }
