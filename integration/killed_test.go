package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B06, B19, L13: the lock of a killed process is granted soon after the process's session has
// lapsed by the server's clock, and not before. This needs no TTL index.
func TestB06KilledHolder(t *testing.T) {
	t.Parallel()
	const rounds = 3
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
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
		if err != nil {
			t.Fatal(err)
		}
		var indexes []bson.M
		if err := cur.All(t.Context(), &indexes); err != nil {
			t.Fatal(err)
		}
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
