package measure

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/leader"
)

// Elections makes this library's elections a [System]: Lock campaigns, Unlock resigns. The function
// opens the session of a process.
type Elections func(context.Context) (*dsync.Session, error)

var _ System = Elections(nil)

// Open implements [System].
func (open Elections) Open(ctx context.Context) (Process, error) {
	s, err := open(ctx)
	return elections{s}, err
}

type elections struct{ session *dsync.Session }

func (p elections) Close() error { return p.session.Close(context.Background()) }

func (p elections) Locker(_ context.Context, key string) (Locker, error) {
	e, err := leader.New(p.session, key, nil)
	return election{e}, err
}

type election struct{ *leader.Election }

func (e election) Lock(ctx context.Context) error {
	_, err := e.Campaign(ctx)
	return err
}

func (e election) Unlock(ctx context.Context) error { return e.Resign(ctx) }
