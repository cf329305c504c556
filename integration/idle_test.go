package integration_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// sweep goes once through the whole store.
func sweep(t *testing.T, s dsync.Store, retention time.Duration) (alive int) {
	t.Helper()
	for after := ""; ; {
		next, n, err := s.Sweep(t.Context(), after, retention)
		if err != nil {
			t.Fatalf("Sweep: %v", err)
		}
		if next == "" {
			return n
		}
		after = next
	}
}

// B08: tokens grow through 1,000 cycles, some of which find the key's record
// deleted.
func TestB08TokensGrow(t *testing.T) {
	const cycles, every = 1000, 50
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		m := r.session(r.short(10 * time.Second)).Mutex("cycles")
		raw := r.raw()
		var last int64
		deleted := 0
		for i := range cycles {
			if i%every == every-1 {
				time.Sleep(5 * time.Millisecond)
				sweep(t, store, time.Millisecond)
				n, err := raw.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "k/cycles"}})
				if err != nil {
					t.Fatal(err)
				}
				deleted += int(1 - n)
			}
			lock(t, m, 10*time.Second)
			if token := m.Token(); token <= last {
				t.Fatalf("cycle %d: token %d after %d", i, token, last)
			} else {
				last = token
			}
			unlock(t, m)
		}
		if deleted < cycles/every/2 {
			t.Errorf("the record was deleted %d times of %d, so little was shown", deleted, cycles/every)
		}
	})
}

// B22: clean-up takes what is idle and nothing that lives.
func TestB22CleanUp(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store, raw := r.store(), r.raw()
		opt := r.short(10 * time.Second)
		session := r.session(opt)
		held := session.Mutex("held")
		lock(t, held, 10*time.Second)
		waiting := locking(t.Context(), r.session(opt).Mutex("held"))
		warm(t, session, "idle")
		lease, err := session.Acquire(t.Context(), "leased", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		leaves := r.session(opt)
		warm(t, leaves, "of one who left")
		left := leaves.ID()
		if err := leaves.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		there := func(id string) bool {
			n, err := raw.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: id}})
			if err != nil {
				t.Fatal(err)
			}
			return n == 1
		}
		eventually(t, 10*time.Second, "the waiter stands in line", func() bool { return load(t, store, "held").Waiting == 1 })

		sweep(t, store, time.Hour)
		for _, id := range []string{"k/held", "k/idle", "k/leased", "k/of one who left", "s/" + session.ID(), "s/" + left} {
			if !there(id) {
				t.Errorf("%s is gone long before its time", id)
			}
		}
		time.Sleep(50 * time.Millisecond)
		if alive := sweep(t, store, 20*time.Millisecond); alive != 2 {
			t.Errorf("%d sessions alive, want 2", alive)
		}
		for id, want := range map[string]bool{
			"k/held": true, "k/leased": true, "s/" + session.ID(): true,
			"k/idle": false, "k/of one who left": false, "s/" + left: false,
		} {
			if got := there(id); got != want {
				t.Errorf("%s there: %v, want %v", id, got, want)
			}
		}
		if held.Token() == 0 {
			t.Error("the clean-up cost a lock")
		}
		unlock(t, held)
		g := granted(t, waiting, 10*time.Second)
		unlock(t, g.m)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
