package measure

import "context"

// A System is what locks are asked of: this library on a store, or a peer on its
// server.
type System interface {
	// Open returns a process with a client of its own, although in this one.
	Open(ctx context.Context) (Process, error)
}
