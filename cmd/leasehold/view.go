package main

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A view is the store, opened to look: nothing is written, and no session registers.
type view struct {
	*dsync.Session
	store  dsync.Store
	target target
}

// look opens a view of the store that the flags name, and has f look through it.
func (a *app) look(ctx context.Context, f func(context.Context, *view) error) error {
	if a.store != nil {
		return lookAt(ctx, &view{store: a.store}, f)
	}
	return a.ask(ctx, func(t target, db *mongo.Database) error {
		first, cancel := context.WithTimeout(ctx, t.timeout)
		defer cancel()
		store, err := dsyncmongo.NewStore(first, db, &dsyncmongo.Options{Collection: t.collection, ReadOnly: true})
		if err != nil {
			return t.unreached(err)
		}
		return lookAt(ctx, &view{store: store, target: t}, f)
	})
}

func lookAt(ctx context.Context, v *view, f func(context.Context, *view) error) error {
	s, err := dsync.New(v.store, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx) // it holds nothing
	v.Session = s
	if err := f(ctx, v); err != nil {
		return v.target.unreached(err)
	}
	return nil
}
