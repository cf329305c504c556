package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// With an arbiter and a secondary that stands still, the primary stays the primary and takes writes, but no
// majority confirms any. The holder is told in time, nobody is granted what may be undone, the log says why, and all
// goes on when the secondary does.
func TestArbiter(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, Arbiter: true})
		r := newRoom(t, own)
		opt := r.short(4 * time.Second)
		var log warned
		opt.Logger = log.logger()
		holder, waiter := r.session(opt), r.session(r.short(4*time.Second))
		m, other := holder.Mutex("key"), waiter.Mutex("key")
		lock(t, m, 30*time.Second)
		first, lost := m.Token(), m.Lost()
		ch := locking(t.Context(), other)
		store := r.store()
		eventually(t, 10*time.Second, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })

		var secondary *mongod.Member
		for _, member := range own.Set().Members()[:2] {
			if member != primary(t, own.Set()) {
				secondary = member
			}
		}
		if err := secondary.Freeze(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { secondary.Thaw() })
		stopped := time.Now()
		select {
		case <-lost:
			if took := time.Since(stopped); took > opt.TTL {
				t.Errorf("told of the loss after %v, TTL %v", took, opt.TTL)
			}
		case <-time.After(2 * opt.TTL):
			t.Error("the holder is not told")
		}
		if err := m.UnlockContext(t.Context()); sentinel(err) != "lost" {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		time.Sleep(time.Until(stopped.Add(3 * opt.TTL)))
		select {
		case g := <-ch:
			t.Errorf("granted without a majority: %+v", g)
		default:
		}
		if err := secondary.Thaw(); err != nil {
			t.Fatal(err)
		}
		if g := granted(t, ch, 30*time.Second); g.token <= first {
			t.Errorf("token %d after %d", g.token, first)
		}
		unlock(t, other)
		lock(t, m, 30*time.Second)
		unlock(t, m)

		said := make(map[string]int)
		for line := range strings.Lines(log.String()) {
			_, op, _ := strings.Cut(line, "op=")
			op, _, _ = strings.Cut(op, " ")
			said[op]++
		}
		for op, n := range said { // at the beginning, after ten seconds, and at the end
			if op != "" && n > 3 {
				t.Errorf("%d lines about %s:\n%s", n, op, log.String())
			}
		}
		if !strings.Contains(log.String(), "waiting for replication timed out") {
			t.Errorf("the log does not say that no majority confirms writes:\n%s", log.String())
		}
		t.Log(log.String())
	})
}
