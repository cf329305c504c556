package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B36: one waiter gives up, one is killed, and one is frozen. Their claims are removed, and the
// next waiter is granted the key. When the frozen waiter is thawed, it queues again and gets its
// turn.
func TestB36LeavingTheQueue(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(patient)
		store := r.store()
		const key = "queue"
		queued := func(n int) {
			t.Helper()
			eventually(t, "the waiters are queued", func() bool { return load(t, store, key).Waiting == n })
		}
		child := func() *proc.Proc {
			t.Helper()
			p := proc.Start(t, "worker", r.args(opt))
			p.Await("ready")
			return p
		}

		held := lock(t, r.session(opt).Mutex(key))
		killed, frozen := child(), child()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		quits := locking(ctx, r.session(opt).Mutex(key))
		queued(1)
		killed.Tell(proc.Order{Do: "lock", Key: key})
		queued(2)
		frozen.Tell(proc.Order{Do: "lock", Key: key})
		queued(3)
		next := locking(t.Context(), r.session(opt).Mutex(key))
		queued(4)

		cancel()
		if g := <-quits; sentinel(g.err) != "canceled" {
			t.Errorf("the waiter that gives up: %v, want context.Canceled", g.err)
		}
		queued(3) // the claim is removed at once, not when a session lapses
		killed.Kill()
		frozen.Stop()
		release(t, held) // the killed waiter is granted the key, because its session has not expired yet
		begin := time.Now()
		g := granted(t, next)
		took := time.Since(begin)
		if limit := 2*opt.TTL + wakeUp; took > limit {
			t.Errorf("served %v after the release, want at most %v", took, limit)
		}
		st := load(t, store, key)
		if len(st.Holders) != 1 || st.Holders[0].Token != g.token {
			t.Errorf("holders %v, want one with token %d", st.Holders, g.token)
		}

		frozen.Cont()
		eventually(t, "the frozen one is queued again", func() bool { return load(t, store, key).Waiting == 1 })
		release(t, g.h)
		late := frozen.Await("lock")
		if late.Err != "" || late.Token <= g.token {
			t.Errorf("the frozen one's turn: token %d after %d, %s", late.Token, g.token, late.Err)
		}
		frozen.Tell(proc.Order{Do: "unlock", Key: key})
		if ev := frozen.Await("unlock"); ev.Err != "" {
			t.Errorf("unlock: %s", ev.Err)
		}
		raw, err := r.raw().FindOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"h", "q"} {
			if a, ok := raw.Lookup(field).ArrayOK(); ok {
				if vs, _ := a.Values(); len(vs) != 0 {
					t.Errorf("at the end the field %s is %v, want it empty", field, a)
				}
			}
		}
		if len(raw) > 512 {
			t.Errorf("at the end the record has %d bytes, want at most 512: %v", len(raw), raw)
		}
	})
}
