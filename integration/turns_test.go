package integration_test

import (
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
)

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
		if err != nil {
			t.Fatal(err)
		}
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
