package measure

import "context"

// A Locker is one goroutine's lock of one key.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}
