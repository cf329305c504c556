package integration_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// L1, L2, L3: a free key can be locked, TryHold of a held key fails and names the holder, and waiting works with and
// without a time limit.
func TestMutex(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(20 * time.Second)
		opt.Host, opt.App, opt.Meta = "host of a", "app 1", map[string]string{"zone": "z"}
		a, b := r.session(opt), r.session(r.short(20*time.Second))
		store := r.store()
		ma, mb := a.Mutex("key"), b.Mutex("key")
		ma.Lock()

		m := member(t, store, a.ID())
		if m.Host != opt.Host || m.PID != os.Getpid() || m.App != opt.App || m.Meta["zone"] != "z" || m.TTL != opt.TTL {
			t.Errorf("the session's record is %+v", m)
		}

		_, err := mb.TryHold(t.Context())
		var held *dsync.HeldError
		if !errors.As(err, &held) || !errors.Is(err, dsync.ErrHeld) {
			t.Fatalf("TryHold: %v, want a *HeldError", err)
		}
		if held.Host != opt.Host || held.PID != os.Getpid() || !held.Since.Equal(load(t, store, "key").Holders[0].Since) {
			t.Errorf("held by %+v", held)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := mb.LockContext(ctx); sentinel(err) != "deadline" || errors.Is(err, dsync.ErrHeld) {
			t.Errorf("waiting with a limit: %v, want context.DeadlineExceeded", err)
		}
		ch := locking(t.Context(), mb)
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })
		ma.Unlock()
		g := granted(t, ch)
		if g.token == 0 || ma.Token() != 0 {
			t.Errorf("the new holder's token is %d, want a token; the former holder's is %d, want 0", g.token, ma.Token())
		}
		release(t, g.h)
		if st := load(t, store, "key"); len(st.Holders) != 0 || st.Waiting != 0 {
			t.Errorf("at the end: %+v, want no holder and no waiter", st)
		}
	})
}

// L7, L13: a lease of fixed duration runs out by itself. Extend postpones its end.
func TestLease(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(10 * time.Second)
		a, b := r.session(opt), r.session(opt)
		store := r.store() // open it before the lease starts, because opening takes seconds on a busy machine
		const d = 6 * time.Second
		l, err := a.Mutex("lease").Lease(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		first := l.Token()
		time.Sleep(d / 3)
		until, err := l.Extend(t.Context())
		if err != nil {
			t.Fatalf("Extend: %v", err)
		}
		st := load(t, store, "lease")
		if got := st.Holders[0].Until; !got.Equal(until) {
			t.Errorf("Extend returned %v, the store has %v", until, got)
		}
		if left := until.Sub(st.Now); left > d+s.Skew || left < d/2 { // another router, with another clock, may report the status
			t.Errorf("%v left after Extend, want at most %v, and at least half of it", left, d)
		}
		if _, err := b.Mutex("lease").TryLease(t.Context(), d); sentinel(err) != "held" {
			t.Errorf("TryLease: %v, want ErrHeld", err)
		}

		begin := time.Now()
		next, err := b.Mutex("lease").Lease(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if !closed(l.Lost()) {
			t.Error("another session acquired the key before Lost closed")
		}
		since := load(t, store, "lease").Holders[0].Since
		if over := since.Sub(until); over < -s.Skew || over > wakeUp {
			t.Errorf("taken %v after its end, want 0 to %v (waited %v)", over, wakeUp, time.Since(begin))
		}
		if next.Token() <= first {
			t.Errorf("token %d came after %d, want a greater one", next.Token(), first)
		}
		if _, err := l.Extend(t.Context()); sentinel(err) != "lost" {
			t.Errorf("Extend after the end: %v, want ErrLost", err)
		}
		if err := l.Release(t.Context()); sentinel(err) != "lost" {
			t.Errorf("Release after the end: %v, want ErrLost", err)
		}
		if next.Token() == 0 {
			t.Error("the late Release ended the next holder's lease")
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// B35: after ReleaseAfter(d), nobody acquires the key before d is over, even if the process that
// called ReleaseAfter has exited. So a job does not run twice within d.
func TestB35ReleaseAfter(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(time.Minute)
		a, b := r.session(opt), r.session(opt)
		h := lock(t, a.Mutex("job"))
		const d = 1500 * time.Millisecond
		before := load(t, r.store(), "job").Now
		if err := h.ReleaseAfter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(t.Context()); err != nil { // as a process would before it exits
			t.Fatal(err)
		}
		next, err := b.Mutex("job").TryHold(t.Context())
		if err != nil { // if err is nil, the machine was so busy that d is already over
			if sentinel(err) != "held" {
				t.Errorf("TryHold: %v, want ErrHeld", err)
			}
			next = lock(t, b.Mutex("job"))
		}
		if gap := load(t, r.store(), "job").Holders[0].Since.Sub(before); gap < d-s.Skew {
			t.Errorf("run again after %v, want at least %v", gap, d)
		}
		release(t, next)
	})
}

// B10: if the store can't be reached, TryHold returns neither nil nor ErrHeld.
func TestB10Unreachable(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p := r.proxy()
		m := warm(t, r.via(p, r.short(2*time.Second)), "key")
		p.Cut()
		if _, err := m.TryHold(t.Context()); err == nil || errors.Is(err, dsync.ErrHeld) {
			t.Errorf("TryHold: %v, want the store's error", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		err := m.LockContext(ctx)
		if sentinel(err) != "deadline" || !strings.Contains(err.Error(), "store") {
			t.Errorf("LockContext: %v, want context.DeadlineExceeded with the store's error", err)
		}
		ch := locking(t.Context(), m) // waits until the store answers again
		time.Sleep(time.Second)
		p.Heal()
		release(t, granted(t, ch).h)
	})
}

// B14: Close needs about one round trip if the session holds nothing.
func TestB14Close(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		session := r.session(r.short(5 * time.Minute)) // although the grace is 30 s
		warm(t, session, "key")
		id := session.ID()
		begin := time.Now()
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > wakeUp {
			t.Errorf("Close took %v, want about a round trip", took)
		}
		if m := member(t, r.store(), id); !m.Expired {
			t.Errorf("after Close the session's record is %+v, want it expired", m)
		}
		m := r.session(r.short(10 * time.Second)).Mutex("key")
		if _, err := m.TryHold(t.Context()); err != nil {
			t.Errorf("another session's TryHold after Close: %v", err)
		}
	})
}
