package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// If the collection is dropped, the holder learns within a TTL that its hold is lost. The waiter is granted the key
// with a greater token. A Once that had succeeded runs again. No process has to be restarted.
func TestDroppedCollection(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(patient)
		lost := make(chan error, 1)
		opt.Hooks = &dsync.Hooks{SessionLost: func(_ string, cause error) { lost <- cause }}
		holder, waiter := r.session(opt), r.session(r.short(patient))
		runs := 0
		once := func(s *dsync.Session) {
			t.Helper()
			if err := s.Once("once").Do(t.Context(), func(context.Context) error { runs++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		once(holder)
		mu := holder.Mutex("key")
		h := lock(t, mu)
		token := h.Token()
		ch := locking(t.Context(), waiter.Mutex("key"))
		eventually(t, "the waiter is queued", func() bool { return load(t, r.store(), "key").Waiting == 1 })

		if err := r.raw().Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
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
