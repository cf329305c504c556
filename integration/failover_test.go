package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// A hold survives the loss of the primary if the set elects another primary within half the TTL. When the hold is
// released, the next waiter is granted the key as usual.
func TestFailover(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, set *mongod.Set){
		"step-down": func(t *testing.T, set *mongod.Set) {
			if err := set.StepDown(t.Context()); err != nil {
				t.Fatalf("step-down: %v", err)
			}
		},
		"primary killed": func(t *testing.T, set *mongod.Set) {
			m := primary(t, set)
			m.Kill()
			t.Cleanup(func() { m.Start() })
		},
		"primary frozen": func(t *testing.T, set *mongod.Set) {
			m := primary(t, set)
			if err := m.Freeze(); err != nil {
				t.Fatal(err)
			}
			thaw := time.AfterFunc(8*time.Second, func() { m.Thaw() }) // the frozen member continues as a former primary
			t.Cleanup(func() { thaw.Stop(); m.Thaw() })
		},
	}
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		for name, harm := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
				r := newRoom(t, own)
				var lost losses
				opt := r.lasting()
				opt.Hooks = lost.hooks()
				a, b := r.session(opt), r.session(opt)
				ma, mb := a.Mutex("key"), b.Mutex("key")
				h := lock(t, ma)
				first := h.Token()
				ch := locking(t.Context(), mb)
				store := r.store()
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })

				old := primary(t, own.Set()).Addr
				harm(t, own.Set())
				begin := time.Now()
				eventually(t, "there is another primary", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					m, err := own.Set().Primary(ctx)
					return err == nil && m.Addr != old
				})
				election := time.Since(begin)
				renewed(t, a, 3)
				if h.Token() != first {
					t.Errorf("the lock was lost when the primary changed")
				}
				select {
				case g := <-ch:
					t.Fatalf("granted to another: %v", g)
				default:
				}
				release(t, h)
				g := granted(t, ch)
				if g.token <= first {
					t.Errorf("token %d came after %d, want a greater one", g.token, first)
				}
				release(t, g.h)
				for range 20 {
					release(t, lock(t, ma))
				}
				lost.none(t)
				lab.Note(t, "another primary after %.1f s", election.Seconds())
			})
		}
	})
}

func primary(t *testing.T, set *mongod.Set) *mongod.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := set.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
