package measure

import (
	"context"
)

// A System provides the locks: this library on a store, or a peer on its server.
type System interface {
	// Open returns a process with a client of its own, although in this one.
	Open(ctx context.Context) (Process, error)
}

// A Process is one process of a [System]: its clients, and its registration if there is one.
type Process interface {
	// Locker returns a lock of the key, for one goroutine.
	Locker(ctx context.Context, key string) (Locker, error)

	// Close gives up whatever the process has.
	Close() error
}

// A Locker is one goroutine's lock of one key.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}
