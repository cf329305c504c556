package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B36: one waiter gives up, one is killed, and one is frozen. Their claims are removed, and the
// next waiter is granted the key. When the frozen waiter is thawed, it queues again and gets its
// turn.
func TestB36LeavingTheQueue(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(patient)
		store := r.store()
		const key = "queue"
		queued := func(n int) {
			t.Helper()
			eventually(t, "the waiters are queued", func() bool { return load(t, store, key).Waiting == n })
		}
		child := func() *proc.Proc {
			t.Helper()
			p := proc.Start(t, "worker", r.args(opt))
			p.Await("ready")
			return p
		}

		held := lock(t, r.session(opt).Mutex(key))
		killed, frozen := child(), child()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		quits := locking(ctx, r.session(opt).Mutex(key))
		queued(1)
		killed.Tell(proc.Order{Do: "lock", Key: key})
		queued(2)
		frozen.Tell(proc.Order{Do: "lock", Key: key})
		queued(3)
		next := locking(t.Context(), r.session(opt).Mutex(key))
		queued(4)

		cancel()
		if g := <-quits; sentinel(g.err) != "canceled" {
			t.Errorf("the waiter that gives up: %v, want context.Canceled", g.err)
		}
		queued(3) // the claim is removed at once, not when a session lapses
		killed.Kill()
		frozen.Stop()
		release(t, held) // the killed waiter is granted the key, because its session has not expired yet
		begin := time.Now()
		g := granted(t, next)
		took := time.Since(begin)
		if limit := 2*opt.TTL + wakeUp; took > limit {
			t.Errorf("served %v after the release, want at most %v", took, limit)
		}
		st := load(t, store, key)
		if len(st.Holders) != 1 || st.Holders[0].Token != g.token {
			t.Errorf("holders %v, want one with token %d", st.Holders, g.token)
		}

		frozen.Cont()
		eventually(t, "the frozen one is queued again", func() bool { return load(t, store, key).Waiting == 1 })
		release(t, g.h)
		late := frozen.Await("lock")
		if late.Err != "" || late.Token <= g.token {
			t.Errorf("the frozen one's turn: token %d after %d, %s", late.Token, g.token, late.Err)
		}
		frozen.Tell(proc.Order{Do: "unlock", Key: key})
		if ev := frozen.Await("unlock"); ev.Err != "" {
			t.Errorf("unlock: %s", ev.Err)
		}
		raw, err := r.raw().FindOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
		noErr(t, err)
		for _, field := range []string{"h", "q"} {
			if a, ok := raw.Lookup(field).ArrayOK(); ok {
				if vs, _ := a.Values(); len(vs) != 0 {
					t.Errorf("at the end the field %s is %v, want it empty", field, a)
				}
			}
		}
		if len(raw) > 512 {
			t.Errorf("at the end the record has %d bytes, want at most 512: %v", len(raw), raw)
		}
	})
}

// B01: several processes share nothing but the server. Each adds to a number in a file while it holds the lock. No
// addition is lost.
func TestB01ProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	const processes, rounds = 4, 50
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		a := r.args(r.short(10 * time.Second))
		a.Key, a.Rounds, a.Dir = "number", rounds, t.TempDir()
		var ps []*proc.Proc
		for range processes {
			ps = append(ps, proc.Start(t, "turns", a))
		}
		for _, p := range ps {
			p.Await("ready")
		}
		begin := time.Now()
		for _, p := range ps {
			p.Tell(proc.Order{Do: "go"})
		}

		type turn struct {
			n     int
			token int64
		}
		var all []turn
		passed := 0
		last := make([]int, processes)
		for i, p := range ps {
			for done := false; !done; {
				select {
				case ev, ok := <-p.Events():
					switch {
					case !ok:
						t.Fatalf("process %d ended", i)
					case ev.Name == "turn":
						if ev.Lost {
							t.Errorf("process %d lost the lock at turn %d", i, ev.N)
						}
						all = append(all, turn{ev.N, ev.Token})
						if last[i] != 0 && ev.N != last[i]+1 {
							passed++
						}
						last[i] = ev.N
					case ev.Name == "done":
						done = true
					}
				case <-time.After(2 * time.Minute):
					t.Fatalf("process %d did not exit", i)
				}
			}
		}
		took := time.Since(begin)

		text, err := os.ReadFile(filepath.Join(a.Dir, "number"))
		noErr(t, err)
		if n, _ := strconv.Atoi(string(text)); n != processes*rounds {
			t.Errorf("the number is %s after %d turns", text, processes*rounds)
		}
		slices.SortFunc(all, func(a, b turn) int { return a.n - b.n })
		for i := range all {
			if all[i].n != i {
				t.Fatalf("turn %d saw the number %d, want the same", i, all[i].n)
			}
			if i > 0 && all[i].token <= all[i-1].token {
				t.Errorf("token %d of turn %d is not greater than %d of the turn before", all[i].token, i, all[i-1].token)
			}
		}
		if passed == 0 {
			t.Error("the lock never passed from one process to another")
		}
		lab.Note(t, "%d turns of %d processes in %.1f s, %d of them handed off", processes*rounds, processes, took.Seconds(), passed)
	})
}

// B01: 50 sessions try to acquire a key at the same time. The key either is new or was held before. Exactly one
// succeeds.
func TestB01FiftyAtOnce(t *testing.T) {
	const candidates, rounds = 50, 20
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		client := r.Client(t, mon.client())
		var sessions []*dsync.Session
		for i := range candidates {
			s := r.open(client, r.short(30*time.Second))
			// A session registers with its first claim, so make one before the race.
			m := s.Mutex(fmt.Sprintf("warm-up %d", i))
			release(t, lock(t, m))
			sessions = append(sessions, s)
		}
		tokens := make(map[string][]int64)
		for round := range rounds {
			key := "again"
			if round%2 == 0 {
				key = fmt.Sprintf("fresh %d", round)
			}
			var mu sync.Mutex
			var winners []*dsync.Hold
			start := make(chan struct{})
			var all sync.WaitGroup
			for _, s := range sessions {
				all.Go(func() {
					m := s.Mutex(key)
					<-start
					h, err := m.TryHold(t.Context())
					mu.Lock()
					defer mu.Unlock()
					switch sentinel(err) {
					case "held":
					default:
						if err != nil {
							t.Errorf("round %d: %v", round, err)
							return
						}
						winners = append(winners, h)
						tokens[key] = append(tokens[key], h.Token())
					}
				})
			}
			close(start)
			all.Wait()
			if len(winners) != 1 {
				t.Errorf("round %d on %q: %d holders, want 1", round, key, len(winners))
			}
			for _, h := range winners {
				release(t, h)
			}
		}
		for key, ts := range tokens {
			if !slices.IsSorted(ts) || len(slices.Compact(slices.Clone(ts))) != len(ts) {
				t.Errorf("tokens of %q don't grow: %v", key, ts)
			}
		}
	})
}
