package measure

import (
	"context"
	"time"
)

// A System provides locks: this library on a store, or another system on its server.
type System interface {
	// Open returns a Process with its own client. A Process is not an operating-system process: unless its Lockers
	// are [Clocked], it runs in the calling program.
	Open(ctx context.Context) (Process, error)
}

// A Process is one client of a [System], with its session if the system has sessions.
type Process interface {
	// Locker returns a lock of the key, for one goroutine.
	Locker(ctx context.Context, key string) (Locker, error)

	// Close closes the process's client or session.
	Close() error
}

// A Locker is one goroutine's lock of one key.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// A Clocked is a Locker in a process of its own, which reports when Lock returned and Unlock was called there.
type Clocked interface {
	Locker
	Locked() time.Time
	Unlocked() time.Time
}
