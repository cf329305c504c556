package integration_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
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
		noErr(t, err)
		first := l.Token()
		time.Sleep(d / 3)
		until, err := l.Extend(t.Context())
		noErr(t, err)
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
		noErr(t, err)
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
		noErr(t, h.ReleaseAfter(t.Context(), d))
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
		noErr(t, session.Close(t.Context()))
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

var mutexesFor = flag.Duration("mutexes.duration", 0, "duration of TestMutexesOfProcesses; 0: 8s, 1m with LEASEHOLD_LONG set")

const severalKeys, severalEach = 20, 5

// several is a child that repeatedly locks some random keys and a file for each of them. It stops when it gets an
// order. When a process is killed, the kernel unlocks its files.
func several(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, &dsync.Hooks{Deadlock: func(members, keys []string) { env.Emit(proc.Event{Name: "deadlock", Text: fmt.Sprint(members, keys)}) }})
	env.Emit(proc.Event{Name: "ready"})
	draw := lab.Rand(a.How)
	for {
		var keys []string
		var locks []dsync.Locker
		for _, k := range draw.Perm(severalKeys)[:severalEach] {
			keys = append(keys, fmt.Sprint("key ", k))
			locks = append(locks, s.Mutex(keys[len(keys)-1]))
		}
		start := time.Now()
		held, unlock, err := dsync.LockAll(context.Background(), locks...)
		if err != nil {
			env.Fatal(err)
		}
		took := time.Since(start)
		var files []*os.File
		for _, key := range keys {
			f, err := os.OpenFile(filepath.Join(a.Dir, key), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				env.Fatal(err)
			}
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				env.Fatal(fmt.Errorf("two processes hold %s at the same time: %w", key, err))
			}
			files = append(files, f)
		}
		time.Sleep(time.Duration(draw.IntN(20)) * time.Millisecond)
		lost := held.Err() != nil
		for _, f := range files {
			f.Close()
		}
		unlock()
		env.Emit(proc.Event{Name: "turn", Took: took, Lost: lost})
		select {
		case <-env.Orders():
			s.Close(context.Background())
			env.Emit(proc.Event{Name: "done"})
			return
		default:
		}
	}
}

// Each process repeatedly locks 5 of 20 keys, and some processes are killed meanwhile. No two
// processes hold the same key at the same time, all of them make progress, and no deadlock is reported.
func TestMutexesOfProcesses(t *testing.T) {
	lasts := cmp.Or(*mutexesFor, time.Duration(testkit.Rounds(8, 60))*time.Second)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		processes := 12
		if !s.FerretDB() { // with other tests running, FerretDB can't accept the connections of a hundred processes
			processes = testkit.Rounds(12, 100)
		}
		r := newRoom(t, s)
		r.session(r.short(patient)) // probe the server once, before a hundred processes open the store
		a := r.args(r.short(patient))
		a.Dir = t.TempDir()
		type event struct {
			p *proc.Proc
			proc.Event
		}
		events := make(chan event)
		draw, started := lab.Rand(t.Name()), 0
		start := func() *proc.Proc {
			started++
			a.How = fmt.Sprint("process ", started)
			p := proc.Start(t, "several", a)
			go func() {
				for ev := range p.Events() {
					events <- event{p, ev}
				}
				events <- event{p, proc.Event{Name: "ended"}}
			}()
			return p
		}
		state := make(map[*proc.Proc]string) // "", "killed" or "done"
		turns := make(map[*proc.Proc]int)
		var all []*proc.Proc
		for range processes {
			p := start()
			state[p] = ""
			all = append(all, p)
		}
		began, last := time.Now(), time.Now()
		var longest, pause time.Duration
		n, kills := 0, 0
		handle := func(ev event) {
			switch ev.Name {
			case "turn":
				if ev.Lost {
					t.Error("a process lost a hold; is the machine too busy to send heartbeats in time?")
				}
				n++
				turns[ev.p]++
				longest, pause, last = max(longest, ev.Took), max(pause, time.Since(last)), time.Now()
			case "deadlock":
				t.Errorf("a deadlock was reported where there is none: %s", ev.Text)
			case "done":
				state[ev.p] = "done"
			case "ended":
				if state[ev.p] == "" {
					t.Fatal("a process exited by itself")
				}
				delete(state, ev.p)
			}
		}
		kill, over := time.NewTicker(patient), time.After(lasts)
		defer kill.Stop()
		for running := true; running; {
			select {
			case ev := <-events:
				handle(ev)
			case <-kill.C:
				i := draw.IntN(len(all))
				state[all[i]] = "killed"
				turns[all[i]] = 1
				all[i].Kill()
				kills++
				all[i] = start()
				state[all[i]], turns[all[i]] = "", 1
			case <-over:
				running = false
			case <-time.After(4 * patient):
				t.Fatalf("no process acquired its keys for %v", time.Since(last))
			}
		}
		took := time.Since(began)
		for _, p := range all {
			p.Tell(proc.Order{Do: "stop"})
		}
		for deadline := time.After(5 * time.Minute); len(state) > 0; {
			select {
			case ev := <-events:
				handle(ev)
			case <-deadline:
				t.Fatalf("%d processes did not exit", len(state))
			}
		}
		for _, p := range all {
			if turns[p] == 0 {
				t.Error("a process never acquired its keys")
			}
		}
		lab.Note(t, "%d turns of %d processes in %.0f s, %d of them killed; the longest wait %.1f s, the longest time without a turn %.1f s", n, processes,
			took.Seconds(), kills, longest.Seconds(), pause.Seconds())
	})
}

// If three processes wait for each other, the process that began to wait last reports the deadlock, and another session
// can list the deadlock. When one process is killed, the others continue.
func TestDeadlockOfProcesses(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(10 * time.Second)
		keys := []string{"x", "y", "z"}
		var ps []*proc.Proc
		for _, key := range keys {
			p := proc.Start(t, "worker", r.args(opt))
			p.Await("ready")
			p.Tell(proc.Order{Do: "lock", Key: key})
			p.Await("lock")
			ps = append(ps, p)
		}
		monitor := r.session(opt)
		found := func() []admin.Deadlock {
			all, err := admin.New(monitor).Deadlocks(t.Context(), "")
			noErr(t, err)
			return all
		}
		time.Sleep(opt.TTL)
		for i, p := range ps {
			if got := found(); len(got) > 0 {
				t.Errorf("%v: a deadlock was reported although only %d processes wait", got, i)
			}
			p.Tell(proc.Order{Do: "lock", Key: keys[(i+1)%3]})
			eventually(t, "the waiter is queued", func() bool { return load(t, r.store(), keys[(i+1)%3]).Waiting == 1 })
		}
		closed := time.Now()
		if got := found(); len(got) != 1 || len(got[0].Members) != 3 || got[0].Members[0].PID == 0 {
			t.Errorf("deadlocks %v, want one of three processes", got)
		}
		ev := ps[2].Await("deadlock")
		if ev.N != 3 {
			t.Errorf("the reported deadlock has %d processes, want 3: %s", ev.N, ev.Text)
		}
		lab.Note(t, "a deadlock of 3 processes was reported after %.1f s: %s", ev.Wall.Sub(closed).Seconds(), ev.Text)
		ps[0].Kill()
		ps[2].Await("lock")
		ps[2].Tell(proc.Order{Do: "unlock", Key: "z"})
		ps[1].Await("lock")
		if got := found(); len(got) > 0 {
			t.Errorf("deadlocks %v, want none after the kill", got)
		}
	})
}
