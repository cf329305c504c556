package leader_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// E6: while Run runs in its own goroutine, the process leads. Run returns only after it has
// released the leadership.
func TestRunIsDoneAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		e := newElection(t, store, nil)
		ctx, cancel := context.WithCancel(background)
		done := make(chan error)
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Second)
		if !e.IsLeader() {
			t.Error("IsLeader is false during the term")
		}
		cancel()
		<-done
		st, err := store.Load(background, "e", 1000)
		if err != nil || len(st.Holders) != 0 || e.IsLeader() {
			t.Errorf("Run has returned, but the store has the holders %v (%v)", st.Holders, err)
		}
	})
}

// E11: TTLs can differ between processes and restarts without a migration. New refuses combinations
// that can't work.
func TestTTLsMayChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		for i, ttl := range []time.Duration{time.Minute, time.Second, 30 * time.Second} {
			s := newSession(t, store, &dsync.Options{TTL: ttl})
			if got := term(t, campaign(t, electionOf(t, s, nil))).Number; got != int64(i+1) {
				t.Errorf("term %d with a TTL of %v", got, ttl)
			}
			time.Sleep(2 * ttl)
			if err := s.Close(background); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := dsync.New(store, &dsync.Options{TTL: time.Second, HeartbeatInterval: time.Second}); err == nil {
			t.Error("a heartbeat interval as long as the TTL was accepted")
		}
	})
}

// E14: the logger can be replaced. B12: a logger that blocks does not end the leadership.
func TestLogger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		w := &slowWriter{}
		s := newSession(t, f, &dsync.Options{Logger: slog.New(slog.NewTextHandler(w, nil))})
		e := electionOf(t, s, nil)
		ctx := campaign(t, e)
		time.Sleep(5 * ttl)
		if ctx.Err() != nil {
			t.Fatal("a slow logger cost the leadership")
		}
		f.Cut()
		<-ctx.Done()
		time.Sleep(10 * ttl)
		for _, want := range []string{"session started", "hold lost", "key=e"} {
			if !strings.Contains(w.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, w.String())
			}
		}
	})
}

type slowWriter struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(ttl)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *slowWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// E15: the heartbeat interval and the poll interval can be set.
func TestPeriodsCanBeSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, period := range []time.Duration{time.Second, 3 * time.Second} {
			store := dsynctest.NewMemory()
			store.Polling = true
			s := newSession(t, store, &dsync.Options{HeartbeatInterval: period, PollInterval: period / 10, Retention: -1})
			campaign(t, electionOf(t, s, nil))
			newElection(t, store, nil)
			before := store.Counts()
			waiting, cancel := context.WithTimeout(background, 30*time.Second)
			other := newSession(t, store, &dsync.Options{PollInterval: period / 10, HeartbeatInterval: period, Retention: -1})
			if _, err := electionOf(t, other, nil).Campaign(waiting); err == nil {
				t.Fatal("two processes lead")
			}
			cancel()
			d := store.Counts().Since(before)
			beats, asks := d.Commands[dsynctest.MethodHeartbeat], d.Commands[dsynctest.MethodAcquire]
			if want := 2 * int(30*time.Second/period); beats < want*8/10 || beats > want*12/10 {
				t.Errorf("period %v: %d heartbeats of two sessions in 30s, want about %d", period, beats, want)
			}
			if want := 10 * int(30*time.Second/period); asks < want*8/10 || asks > want*12/10 {
				t.Errorf("poll %v: polled %d times in 30s, want about %d", period/10, asks, want)
			}
			s.Close(background)
		}
	})
}

// E7: an application can run the election itself, with TryCampaign, Leader and Resign.
func TestCycleByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var es []*leader.Election
		for range 3 {
			es = append(es, newElection(t, store, nil))
		}
		for round := range 6 {
			led := 0
			for _, e := range es {
				if _, err := e.TryCampaign(background); err == nil {
					led++
				}
			}
			l, err := es[0].Leader(background)
			if led != 1 || err != nil || l.Term != int64(round+1) {
				t.Errorf("round %d: %d processes lead; the leader is %+v (%v)", round, led, l, err)
			}
			for _, e := range es {
				if e.IsLeader() {
					if err := e.Resign(background); err != nil {
						t.Error(fmt.Errorf("Resign: %w", err))
					}
				}
			}
		}
	})
}
