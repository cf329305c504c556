package measure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Each hand-off takes less than a second and three commands, and after Close the key is free.
func TestRing(t *testing.T) {
	for name, system := range map[string]func(open func(context.Context) (*dsync.Session, error)) measure.System{
		"mutexes": func(open func(context.Context) (*dsync.Session, error)) measure.System { return measure.Mutexes(open) },
		"elections": func(open func(context.Context) (*dsync.Session, error)) measure.System {
			return measure.Elections(open)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				system := system(inMemory(store, dsync.Options{Retention: -1})) // no sweeps, which would be counted
				ring, err := measure.NewRing(t.Context(), system, "ring", 3)
				if err != nil {
					t.Fatal(err)
				}
				before := 0
				for i := range 3 + 6 {
					if i == 3 { // by now each process has waited once
						before = store.Counts().Total()
					}
					if took, err := ring.HandOff(t.Context()); err != nil || took >= time.Second {
						t.Errorf("hand-off: took %v, error %v; want less than a second, without a poll", took, err)
					}
				}
				// Each hand-off needs three commands: a release, its notice and the former holder's
				// new request.
				if got := store.Counts().Total() - before; got != 3*6 {
					t.Errorf("%d commands for 6 hand-offs, want 18", got)
				}
				ring.Close()
				p, err := system.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				l, err := p.Locker(t.Context(), "ring")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Lock(ctx); err != nil {
					t.Errorf("the key is not free after Close: %v", err)
				}
			})
		})
	}
}
