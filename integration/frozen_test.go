package integration_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// B05, B28, B32: a holder is frozen for two TTLs. When it continues, its first call of Lost, Token or Err reports that
// the lock is lost, and its late Unlock changes nothing. The test freezes a holder 6 times, or 20 times in a long run.
func TestB05FrozenHolder(t *testing.T) {
	t.Parallel()
	processes, rounds := testkit.Rounds(3, 5), testkit.Rounds(2, 4)
	checks := []string{"lost", "token", "err"}
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(2 * time.Second)
		store := r.store()
		waiter := r.session(r.short(patient))
		for i := range processes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				a := r.args(opt)
				a.Key = fmt.Sprintf("frozen %d", i)
				p := proc.Start(t, "frozen", a)
				p.Await("ready")
				for round := range rounds {
					how := checks[(i+round)%len(checks)]
					p.Tell(proc.Order{Do: how})
					locked := p.Await("locked")
					time.Sleep(20 * time.Millisecond) // until it spins
					p.Stop()
					stopped := time.Now()

					g := granted(t, locking(t.Context(), waiter.Mutex(a.Key)))
					if g.token <= locked.Token {
						t.Errorf("token %d is not greater than the frozen holder's %d", g.token, locked.Token)
					}
					time.Sleep(time.Until(stopped.Add(2 * opt.TTL)))
					p.Cont()

					if check := p.Await("check"); !check.Lost {
						t.Errorf("round %d: after %v the first check (%s) does not report the loss", round, check.Took, how)
					}
					if un := p.Await("unlocked"); un.Is != "lost" {
						t.Errorf("round %d: late Unlock returned %q, want ErrLost", round, un.Err)
					}
					if st := load(t, store, a.Key); len(st.Holders) != 1 || st.Holders[0].Token != g.token {
						t.Errorf("round %d: after the late Unlock the holders are %v, want token %d", round, st.Holders, g.token)
					}
					if now := g.h.Token(); now != g.token {
						t.Errorf("round %d: the new holder's token is %d, want %d", round, now, g.token)
					}
					release(t, g.h)
				}
			})
		}
	})
}

// A stallMeter measures how long the machine keeps this process from running. The library promises
// nothing during such a stall, because a frozen process can't be notified.
type stallMeter struct {
	late atomic.Int64 // the longest stall, in ns
	end  chan struct{}
}

func newStallMeter(t testing.TB) *stallMeter {
	m := &stallMeter{end: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		const interval = 2 * time.Millisecond
		for {
			begin := time.Now()
			select {
			case <-time.After(interval):
			case <-m.end:
				return
			}
			m.late.Store(max(m.late.Load(), int64(time.Since(begin)-interval)))
		}
	}()
	t.Cleanup(func() {
		close(m.end)
		<-done
	})
	return m
}

// worst returns the longest stall since the last call.
func (m *stallMeter) worst() time.Duration { return time.Duration(m.late.Swap(0)) }

// atLeast checks gap, the time from a holder's notification to an event. It fails the test if gap
// plus the longest stall since the last call of worst is shorter than the grace. It returns gap or
// the grace, whichever is longer.
func (m *stallMeter) atLeast(t testing.TB, what string, gap, grace time.Duration) time.Duration {
	t.Helper()
	stalled := m.worst()
	switch {
	case gap >= grace:
		return gap
	case gap+stalled < grace:
		t.Errorf("%s %v after the holder was notified, want the grace of %v; the process stalled for %v", what, gap, grace, stalled)
	default:
		t.Logf("%s %v after the holder was notified: the process stalled for %v", what, gap, stalled)
	}
	return grace
}
