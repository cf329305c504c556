package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B06, B19, L13: the lock of a killed process is granted soon after the process's session has
// lapsed by the server's clock, and not before. This needs no TTL index.
func TestB06KilledHolder(t *testing.T) {
	t.Parallel()
	const rounds = 3
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(2 * time.Second)
		store := r.store()
		waiter := r.session(r.short(patient))
		var late []time.Duration
		for round := range rounds {
			key := fmt.Sprintf("killed %d", round)
			p, holder := r.startHolder(opt, key)

			ch := locking(t.Context(), waiter.Mutex(key))
			eventually(t, "the waiter is queued", func() bool { return load(t, store, key).Waiting == 1 })
			time.Sleep(time.Duration(lab.Rand(t.Name(), round).Int64N(int64(opt.TTL / 2))))
			p.Kill()
			time.Sleep(100 * time.Millisecond) // wait until everything that p sent has arrived
			died := member(t, store, holder.Text)
			lapse := died.LastHeartbeat.Add(died.TTL)

			g := granted(t, ch)
			h := load(t, store, key).Holders[0]
			if h.Since.Before(lapse.Add(-s.Skew)) {
				t.Errorf("taken at %v, %v before the killed session lapsed", h.Since, lapse.Sub(h.Since))
			}
			if over := h.Since.Sub(lapse); over > wakeUp {
				t.Errorf("taken %v after the killed session lapsed, want at most %v", over, wakeUp)
			} else {
				late = append(late, over)
			}
			if g.token <= holder.Token {
				t.Errorf("token %d is not greater than the killed holder's %d", g.token, holder.Token)
			}
			release(t, g.h)
		}

		cur, err := r.raw().Indexes().List(t.Context())
		noErr(t, err)
		var indexes []bson.M
		noErr(t, cur.All(t.Context(), &indexes))
		if len(indexes) != 1 {
			t.Errorf("indexes %v, want only that on _id", indexes)
		}
		lab.Note(t, "taken %v after the killed session lapsed (server's clock)", late)
	})
}

// A program that uses only TryLock also gets the key of a crashed holder.
func TestTryAfterCrash(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(3 * time.Second) // on a busy machine, heartbeats can fail for a second
		p, _ := r.startHolder(opt, "tried")
		tries := r.session(r.short(patient)).Mutex("tried")
		if tries.TryLock() {
			t.Fatal("TryLock of a held key succeeded")
		}
		p.Kill()
		time.Sleep(opt.TTL + 200*time.Millisecond)
		h, err := tries.TryHold(t.Context())
		if err != nil {
			t.Fatalf("the first try after the session lapsed: %v", err)
		}
		release(t, h)
	})
}

// While other sessions lock and unlock, the only server is killed several times. Each time, it has just answered a
// Lock. When it comes back, everything that it acknowledged is still there: the lock is held, and tokens grow.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, _ *server.Server) {
		for name, spec := range map[string]mongod.Spec{"a standalone": {}, "a set of one": {Members: 1}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				times := testkit.Rounds(4, 40)
				own := lab.Start(t, spec)
				r, node := newRoom(t, own), own.Set().Members()[0]
				opt := r.short(30 * time.Second)

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var mu sync.Mutex
				var last int64
				grants := 0
				var busy sync.WaitGroup
				defer busy.Wait()
				defer cancel()
				for range 4 {
					m := r.session(opt).Mutex("busy")
					busy.Go(func() {
						for ctx.Err() == nil {
							h, err := m.Hold(ctx)
							if err != nil {
								continue
							}
							mu.Lock()
							if token := h.Token(); token > last {
								last, grants = token, grants+1
							} else if token != 0 {
								t.Errorf("token %d came after %d, want a greater one", token, last)
							}
							mu.Unlock()
							h.Release(context.Background()) // this call waits until the server is back
						}
					})
				}

				keeper, store := r.session(opt), r.store()
				for i := range times {
					h := lock(t, keeper.Mutex(fmt.Sprint("kept ", i)))
					node.Kill()
					noErr(t, node.Start())
					eventually(t, "the server is back", func() bool {
						st, err := store.Load(t.Context(), h.Key(), 1)
						if err == nil && (len(st.Holders) != 1 || st.Holders[0].Token != h.Token()) {
							t.Errorf("after kill %d: held by %v, want the acknowledged token %d", i, st.Holders, h.Token())
						}
						return err == nil
					})
					mu.Lock()
					before := grants
					mu.Unlock()
					eventually(t, "others lock again", func() bool {
						mu.Lock()
						defer mu.Unlock()
						return grants > before+20
					})
				}
				mu.Lock()
				defer mu.Unlock()
				lab.Note(t, "%s, killed %d times: %d grants", name, times, grants)
			})
		}
	})
}
