package integration_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// mount mounts the directory at another path, which it returns. If this process may not mount, it
// returns the same path.
func mount(t *testing.T, path string) string {
	t.Helper()
	other := t.TempDir()
	if err := syscall.Mount(path, other, "", syscall.MS_BIND, ""); err != nil {
		return path
	}
	t.Cleanup(func() { syscall.Unmount(other, 0) })
	return other
}

// If a process is killed, another process on the same machine is granted its lock after the margin, long before the
// TTL. The other process may already be waiting, or may start afterwards. It may see the directory at another path.
func TestHostDirKilledHolder(t *testing.T) {
	t.Parallel()
	const rounds = 5
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(30 * time.Second)
		opt.HostDir = newHostDir(t)
		store := r.store()
		mounted := opt
		mounted.HostDir = mount(t, opt.HostDir)
		waiter := r.session(mounted)
		margin := waiter.Options().Margin
		var took, restarted []time.Duration
		check := func(what string, d time.Duration, before, after int64) {
			if d < margin || d > opt.TTL/2 {
				t.Errorf("%s: granted %v after SIGKILL, want it after the margin, %v, and long before the TTL, %v", what, d, margin, opt.TTL)
			}
			if after <= before {
				t.Errorf("%s: token %d is not greater than the killed holder's %d", what, after, before)
			}
		}
		for round := range rounds {
			key := fmt.Sprintf("hosted %d", round)
			p, held := r.startHolder(opt, key)
			ch := locking(t.Context(), waiter.Mutex(key))
			eventually(t, "the waiter is queued", func() bool { return load(t, store, key).Waiting == 1 })
			time.Sleep(100 * time.Millisecond) // wait until the waiter has read who holds the key
			killed := time.Now()
			p.Kill()
			g := granted(t, ch)
			d := time.Since(killed)
			check("a waiter", d, held.Token, g.token)
			took = append(took, d-margin)
			release(t, g.h)

			p, held = r.startHolder(opt, key)
			next := proc.Start(t, "worker", r.args(opt))
			next.Await("ready")
			p.Kill()
			killed = time.Now()
			next.Tell(proc.Order{Do: "lock", Key: key})
			after := next.Await("lock")
			d = time.Since(killed)
			check("the next process", d, held.Token, after.Token)
			restarted = append(restarted, d-margin)
			next.Tell(proc.Order{Do: "close"})
			if closed := next.Await("close"); closed.Err != "" {
				t.Errorf("close: %v", closed.Err)
			}
		}
		eventually(t, "only the waiter's file is left", func() bool {
			left, err := filepath.Glob(filepath.Join(opt.HostDir, "*"))
			return err == nil && len(left) == 1
		})
		lab.Note(t, "with HostDir, granted after SIGKILL and the margin of %v: a waiter %v later, a process that starts after the kill %v later", margin, took, restarted)
	})
}

// The lock of a frozen process is granted when the process's session has lapsed, and not before.
func TestHostDirStoppedHolder(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(3 * time.Second)
		opt.HostDir = newHostDir(t)
		store := r.store()
		p, held := r.startHolder(opt, "stopped")
		ch := locking(t.Context(), r.session(opt).Mutex("stopped"))
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "stopped").Waiting == 1 })
		p.Stop()
		time.Sleep(100 * time.Millisecond) // wait until everything that p sent has arrived
		stopped := member(t, store, held.Text)
		lapse := stopped.LastHeartbeat.Add(stopped.TTL)
		g := granted(t, ch)
		if h := load(t, store, "stopped").Holders[0]; h.Since.Before(lapse.Add(-s.Skew)) {
			t.Errorf("taken at %v, %v before the stopped session lapsed", h.Since, lapse.Sub(h.Since))
		}
		p.Cont()
		if lost := p.Await("lost"); lost.Token != held.Token {
			t.Errorf("lost token %d; want %d", lost.Token, held.Token)
		}
		release(t, g.h)
	})
}
