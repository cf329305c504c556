package measure

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/leader"
)

// Elections makes this library's elections a [System]: Lock campaigns, Unlock resigns.
type Elections struct {
	Target  *Target
	Options dsync.Options
}

var _ System = (*Elections)(nil)

// Open implements [System].
func (e *Elections) Open(ctx context.Context) (Process, error) {
	s, err := e.Target.Session(ctx, e.Options)
	if err != nil {
		return nil, err
	}
	return &elections{s}, nil
}

type elections struct{ session *dsync.Session }

func (p *elections) Close() error { return p.session.Close(context.Background()) }

func (p *elections) Locker(_ context.Context, key string) (Locker, error) {
	e, err := leader.New(p.session, key, nil)
	if err != nil {
		return nil, err
	}
	return election{e}, nil
}

type election struct{ *leader.Election }

func (e election) Lock(ctx context.Context) error {
	_, err := e.Campaign(ctx)
	return err
}

func (e election) Unlock(ctx context.Context) error { return e.Resign(ctx) }
