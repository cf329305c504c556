package integration_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// Promise 5: where the server notifies, a standalone and a cluster included, a waiter is
// notified. It requests the key once, and once more if it has just begun to listen. With the
// short poll of other tests it would request three times more; here the poll is a minute away.
func TestWaiterIsNotified(t *testing.T) {
	t.Parallel()
	const rounds, hold = 6, 800 * time.Millisecond
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := quiet()
		opt.TTL = 2 * time.Minute
		mons := []*monitor{newMonitor(r.DB), newMonitor(r.DB)}
		holder := warm(t, r.session(opt, mons[0].client()), "pushed")
		waiter := warm(t, r.session(opt, mons[1].client()), "pushed")
		store := r.store()
		lock(t, holder, 10*time.Second)
		requested, listens := 0, 0
		var took time.Duration
		for round := range rounds {
			mon := mons[(round+1)%2] // the waiter's
			mon.reset()
			ch := locking(t.Context(), waiter)
			eventually(t, 10*time.Second, "the waiter is queued", func() bool { return load(t, store, "pushed").Waiting == 1 })
			time.Sleep(hold)
			begin := time.Now()
			unlock(t, holder)
			g := granted(t, ch, 20*time.Second)
			took += g.at.Sub(begin)

			// Not the short one, by which it tries whether a key that it was the last to hold is free.
			requests := mon.commands(func(c command) bool { return c.name == "findAndModify" && c.id == "k/pushed" && acquire(c.body) })
			most := 1
			if round < len(mons) {
				most = 2 // it has just begun to listen
			}
			if len(requests) > most {
				t.Errorf("round %d: requested %d times, want at most %d: %v", round, len(requests), most, requests)
			}
			requested += len(requests)
			listens += len(mon.commands(awaits))
			holder, waiter = waiter, holder
		}
		unlock(t, holder)
		if listens == 0 {
			t.Error("nobody listened, so nothing was shown")
		}
		lab.Note(t, "%d waits of %v: requested %d times; granted %v after the call of Unlock, on average", rounds, hold, requested, (took / rounds).Round(100*time.Microsecond))
	})
}
