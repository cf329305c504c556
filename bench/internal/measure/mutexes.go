package measure

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
)

// Mutexes makes this library's mutexes a [System]. The function opens the session of a process.
type Mutexes func(context.Context) (*dsync.Session, error)

var _ System = Mutexes(nil)

// Open implements [System].
func (open Mutexes) Open(ctx context.Context) (Process, error) {
	s, err := open(ctx)
	return mutexes{s}, err
}

type mutexes struct{ *dsync.Session }

func (p mutexes) Close() error { return p.Session.Close(context.Background()) }

func (p mutexes) Locker(_ context.Context, key string) (Locker, error) {
	return mutex{p.Mutex(key)}, nil
}

type mutex struct{ *dsync.Mutex }

func (m mutex) Lock(ctx context.Context) error { return m.LockContext(ctx) }

func (m mutex) Unlock(context.Context) error {
	m.Mutex.Unlock()
	return nil
}
