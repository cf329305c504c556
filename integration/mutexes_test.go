package integration_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

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
			if err != nil {
				t.Fatal(err)
			}
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
