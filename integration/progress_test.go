package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/leader"
)

// L16: a goroutine has set a limit for its progress, and then hangs, although its process is healthy. When it has
// reported no progress for that long, its hold or term ends. After the grace, another process gets the key. The session
// keeps its other holds.
func TestHangingHolder(t *testing.T) {
	t.Parallel()
	const limit, grace, busy = 2 * time.Second, time.Second, 10 * time.Second // busy is the delay allowed for a busy machine
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		hangs := make(chan struct{})
		t.Cleanup(func() { close(hangs) })

		// work reports progress three times and then hangs. When its context ends, it sends the time
		// since the last report.
		type end struct {
			at    time.Time
			after time.Duration
			cause error
		}
		work := func(ctx context.Context, ends chan<- end) error {
			var last time.Time
			for range 3 {
				if err := dsync.HoldFrom(ctx).Progress(limit); err != nil {
					t.Error(err)
				}
				last = time.Now()
				time.Sleep(limit / 2)
			}
			context.AfterFunc(ctx, func() { ends <- end{time.Now(), time.Since(last), context.Cause(ctx)} })
			<-hangs
			return ctx.Err()
		}
		check := func(e end, next time.Time) {
			t.Helper()
			if e.after < limit || e.after > limit+busy || !errors.Is(e.cause, dsync.ErrStalled) {
				t.Errorf("ended %v after the last report (%v), want %v or a little more", e.after, e.cause, limit)
			}
			wait := next.Sub(e.at)
			if wait < grace*9/10 || wait > grace+busy { // e.at can be slightly late
				t.Errorf("granted to another %v later, want the grace of %v, and not much more", wait, grace)
			}
			t.Logf("ended %v after the last report, and granted to another %v later", e.after, wait)
		}

		opt := r.short(2 * time.Minute) // if the session were lost instead, others would get the key much later
		opt.Grace = grace
		session, other := r.session(opt), r.session(r.short(time.Minute))
		kept := lock(t, session.Mutex("kept"))
		warm(t, other, "other")

		mu := session.Mutex("hangs")
		began, ended := make(chan struct{}), make(chan end, 1)
		go mu.Do(t.Context(), func(ctx context.Context) error { close(began); return work(ctx, ended) })
		<-began
		g := granted(t, locking(t.Context(), other.Mutex("hangs")))
		check(<-ended, g.at)

		ours, err := leader.New(session, "election", nil)
		noErr(t, err)
		theirs, err := leader.New(other, "election", nil)
		noErr(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leads, termEnded := make(chan struct{}), make(chan end, 1)
		go ours.Run(ctx, func(ctx context.Context) error { close(leads); return work(ctx, termEnded) })
		<-leads
		if _, err := theirs.Campaign(ctx); err != nil {
			t.Fatal(err)
		}
		check(<-termEnded, time.Now())

		if kept.Token() == 0 || session.Healthy() == nil {
			t.Errorf("another key of the session is held: %t, want true; Healthy: %v, want an error", kept.Token() != 0, session.Healthy())
		}
		release(t, kept)
		release(t, g.h)
	})
}
