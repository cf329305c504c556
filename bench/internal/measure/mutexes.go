package measure

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
)

// Mutexes makes this library's mutexes a [System].
type Mutexes struct {
	Target  *Target
	Options dsync.Options
}

var _ System = (*Mutexes)(nil)

// Open implements [System].
func (m *Mutexes) Open(ctx context.Context) (Process, error) {
	s, err := m.Target.Session(ctx, m.Options)
	if err != nil {
		return nil, err
	}
	return &mutexes{s}, nil
}

type mutexes struct {
	*dsync.Session
}

func (p *mutexes) Close() error { return p.Session.Close(context.Background()) }

func (p *mutexes) Locker(_ context.Context, key string) (Locker, error) {
	return LockerOf(p.Mutex(key)), nil
}

type mutex struct{ *dsync.Mutex }

func (m mutex) Lock(ctx context.Context) error { return m.LockContext(ctx) }

func (m mutex) Unlock(context.Context) error {
	m.Mutex.Unlock()
	return nil
}

// LockerOf returns m as a [Locker].
func LockerOf(m *dsync.Mutex) Locker { return mutex{m} }
