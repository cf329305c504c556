package integration_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// While the whole server is paused for two TTLs, holders are notified in time by their own
// timers. Afterwards every session recovers by itself.
func TestPausedServer(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Container: true}, func(t *testing.T, _ *server.Server) {
		own, box := lab.StartContainer(t, false)
		r := newRoom(t, own)
		opt := r.short(2 * time.Second)
		a, b := r.session(opt), r.session(opt)
		ma, mb := a.Mutex("key"), b.Mutex("key")
		h := lock(t, ma)
		first := h.Token()
		ch := locking(t.Context(), mb)
		store := r.store()
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })

		noErr(t, box.Pause())
		begin := time.Now()
		select {
		case <-h.Lost():
			if took := time.Since(begin); took > opt.TTL {
				t.Errorf("notified after %v, want less than the TTL of %v", took, opt.TTL)
			}
		case <-time.After(2 * opt.TTL):
			t.Error("the holder was not notified")
		}
		time.Sleep(time.Until(begin.Add(2 * opt.TTL)))
		select {
		case g := <-ch:
			t.Errorf("a grant from a paused server: %v", g)
		default:
		}
		noErr(t, box.Unpause())

		g := granted(t, ch)
		if g.token <= first {
			t.Errorf("token %d came after %d, want a greater one", g.token, first)
		}
		if err := h.Release(t.Context()); sentinel(err) != "lost" {
			t.Errorf("late Release: %v, want ErrLost", err)
		}
		again := locking(t.Context(), ma)
		release(t, g.h)
		release(t, granted(t, again).h)
	})
}
