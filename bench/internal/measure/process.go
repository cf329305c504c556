package measure

import "context"

// A Process is what a process is to a [System]: its clients, and whatever it has to
// be present with.
type Process interface {
	// Locker returns a lock of the key, for one goroutine.
	Locker(ctx context.Context, key string) (Locker, error)

	// Close gives up whatever the process has.
	Close() error
}
