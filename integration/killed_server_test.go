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
)

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
					if err := node.Start(); err != nil {
						t.Fatal(err)
					}
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
