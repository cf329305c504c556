package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// If the collection is capped, every Open fails with an error that says what to do. Once the
// collection has been dropped, as the error says, a new session works.
func TestCappedCollection(t *testing.T) {
	lab.Each(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		db := r.Client(t).Database(r.DB)
		capped := options.CreateCollection().SetCapped(true).SetSizeInBytes(1 << 20)
		noErr(t, db.CreateCollection(t.Context(), collection, capped))
		for range 2 {
			_, err := dsyncmongo.Open(t.Context(), db, nil)
			if !errors.Is(err, dsync.ErrRefused) || !strings.Contains(err.Error(), "capped") || !strings.Contains(err.Error(), "drop it") {
				t.Errorf("Open: %v, want ErrRefused, with the cause (capped) and what to do", err)
			}
		}
		noErr(t, r.raw().Drop(t.Context()))
		m := r.session(r.short(patient)).Mutex("key")
		release(t, lock(t, m))
	})
}

// If the collection is dropped, the holder learns within a TTL that its hold is lost. The waiter is granted the key
// with a greater token. A Once that had succeeded runs again. No process has to be restarted.
func TestDroppedCollection(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(patient)
		lost := make(chan error, 1)
		opt.Hooks = &dsync.Hooks{SessionLost: func(_ string, cause error) { lost <- cause }}
		holder, waiter := r.session(opt), r.session(r.short(patient))
		runs := 0
		once := func(s *dsync.Session) {
			t.Helper()
			noErr(t, s.Once("once").Do(t.Context(), func(context.Context) error { runs++; return nil }))
		}
		once(holder)
		mu := holder.Mutex("key")
		h := lock(t, mu)
		token := h.Token()
		ch := locking(t.Context(), waiter.Mutex("key"))
		eventually(t, "the waiter is queued", func() bool { return load(t, r.store(), "key").Waiting == 1 })

		noErr(t, r.raw().Drop(t.Context()))
		dropped := time.Now()
		select {
		case <-h.Lost():
			lab.Note(t, "lost %v after the drop, TTL %v", time.Since(dropped).Round(time.Millisecond), patient)
		case <-time.After(patient):
			t.Fatal("the holder was not notified within a TTL")
		}
		if cause := <-lost; sentinel(h.Release(t.Context())) != "lost" {
			t.Errorf("Release after the drop does not return ErrLost; the session was lost with the cause %v", cause)
		}
		g := granted(t, ch)
		if g.token <= token && g.token != 0 { // 0 if the waiter's session was lost, too
			t.Errorf("token %d after %d, want a greater one", g.token, token)
		}
		g.h.Release(t.Context()) // the waiter's session may be lost
		h = lock(t, mu)
		if h.Token() <= g.token {
			t.Errorf("token %d after %d, want a greater one", h.Token(), g.token)
		}
		release(t, h)
		once(waiter)
		if runs != 2 {
			t.Errorf("the Once ran %d times, want 2, before and after the drop", runs)
		}
	})
}

// B38: an operator deletes the record of a held key. The holder is notified at its next heartbeat,
// and the cause names the deletion. A process that has acquired the key by then keeps it. A hold
// of another key is not lost.
func TestRecordDeleted(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		a, b := r.session(r.short(10*time.Second)), r.session(r.short(10*time.Second))
		key, other := lock(t, a.Mutex("k")), lock(t, a.Mutex("other"))
		sem, err := a.Semaphore("s", 2).Hold(t.Context(), 1)
		noErr(t, err)
		for _, key := range []string{"k", "s"} {
			if d, err := r.raw().DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}); err != nil || d.DeletedCount != 1 {
				t.Fatalf("deleting the record of %q: %v, %v", key, d, err)
			}
		}
		deleted := time.Now()
		next := lock(t, b.Mutex("k"))
		for _, h := range []*dsync.Hold{key, sem} {
			select {
			case <-h.Lost():
			case <-time.After(time.Minute):
				t.Fatal("the holder was not notified within a minute")
			}
		}
		lab.Note(t, "notified after %v", time.Since(deleted).Round(time.Millisecond))
		for _, h := range []*dsync.Hold{key, sem} {
			if err := h.Release(t.Context()); !errors.Is(err, dsync.ErrLost) || !errors.Is(err, dsync.ErrRecordDeleted) {
				t.Errorf("Release: %v, want ErrLost because of ErrRecordDeleted", err)
			}
		}
		release(t, next)
		release(t, other)
	})
}
