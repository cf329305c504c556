package measure

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// many is a [System] like [Mutexes] whose processes share one client, so that a thousand of them
// fit on one server.
type many struct {
	store   driver.Store
	end     func()
	options dsync.Options
}

var _ System = (*many)(nil)

func newMany(ctx context.Context, t *Target, opt dsync.Options) (*many, error) {
	store, end, err := t.Shared(ctx, 0)
	if err != nil {
		return nil, err
	}
	return &many{store, end, opt}, nil
}

// Open implements [System].
func (m *many) Open(context.Context) (Process, error) {
	s, err := dsync.New(m.store, &m.options)
	if err != nil {
		return nil, err
	}
	return &mutexes{Session: s}, nil
}
