package otel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

func TestMetricsOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{})
		s := r.session(dsynctest.NewMemory())
		mu := s.Mutex("k")
		mu.Lock()
		var wg sync.WaitGroup
		wg.Go(func() {
			other := s.Mutex("k")
			other.Lock()
			time.Sleep(50 * time.Millisecond)
			other.Unlock()
		})
		synctest.Wait()
		r.want("leasehold.hold.active", "leasehold.hold.active{leasehold.kind=mutex} 1")
		time.Sleep(25 * time.Millisecond)
		mu.Unlock() // soon enough to be handed off to the waiting goroutine
		wg.Wait()
		rw := s.RWMutex("rw")
		rw.RLock()
		r.want("leasehold.acquire",
			"leasehold.acquire.duration{leasehold.grant.source=store,leasehold.kind=mutex} 1 in 0s",
			"leasehold.acquire.duration{leasehold.grant.source=local,leasehold.kind=mutex} 1 in 0.025s",
			"leasehold.acquire.duration{leasehold.grant.source=store,leasehold.kind=rwmutex} 1 in 0s")
		r.want("leasehold.grants",
			"leasehold.grants{leasehold.grant.source=store,leasehold.kind=mutex} 1",
			"leasehold.grants{leasehold.grant.source=local,leasehold.kind=mutex} 1",
			"leasehold.grants{leasehold.grant.source=store,leasehold.kind=rwmutex} 1")
		r.want("leasehold.hold",
			"leasehold.hold.active{leasehold.kind=mutex} 0",
			"leasehold.hold.active{leasehold.kind=rwmutex} 1",
			"leasehold.hold.duration{leasehold.kind=mutex} 2 in 0.075s")
		rw.RUnlock()
	})
}

// Each cause of a loss has its own error.type. If the holder itself ended the hold, this does not
// count as a loss.
func TestMetricsOfLosses(t *testing.T) {
	tests := []struct {
		cause string // "": none
		kind  string
		lose  func(s *dsync.Session, f *dsynctest.Faulty, store *dsynctest.Memory)
	}{
		{"expired", "mutex", func(s *dsync.Session, f *dsynctest.Faulty, _ *dsynctest.Memory) {
			mu := s.Mutex("k")
			mu.Lock()
			f.Cut()
			<-mu.Lost()
			f.Heal()
			mu.Unlock()
		}},
		{"session_expired", "mutex", func(s *dsync.Session, _ *dsynctest.Faulty, store *dsynctest.Memory) {
			mu := s.Mutex("k")
			mu.Lock()
			store.Skew(ttl + time.Second)
			store.Expire(background, s.ID(), false)
			<-mu.Lost()
			mu.Unlock()
		}},
		{"revoked", "mutex", func(s *dsync.Session, _ *dsynctest.Faulty, _ *dsynctest.Memory) { broken(s) }},
		{"stalled", "mutex", func(s *dsync.Session, _ *dsynctest.Faulty, _ *dsynctest.Memory) {
			h, _ := s.Mutex("k").Hold(background)
			h.Progress(time.Second)
			<-h.Lost()
			h.Release(background)
		}},
		{"record_deleted", "mutex", func(s *dsync.Session, _ *dsynctest.Faulty, store *dsynctest.Memory) {
			mu := s.Mutex("k")
			mu.Lock()
			store.DeleteRecord("k")
			<-mu.Lost()
			mu.Unlock()
		}},
		{"closed", "mutex", func(s *dsync.Session, _ *dsynctest.Faulty, _ *dsynctest.Memory) {
			mu := s.Mutex("k")
			mu.Lock()
			s.Close(background)
			mu.Unlock()
		}},
		{"", "election", func(s *dsync.Session, _ *dsynctest.Faulty, _ *dsynctest.Memory) {
			e, err := leader.New(s, "k", nil)
			if err == nil {
				_, err = e.Campaign(background)
			}
			if err != nil {
				t.Error(err)
				return
			}
			e.Resign(background)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := dsynctest.NewFaulty(store, nil)
				defer faulty.Close()
				r := record(t, dsyncotel.Options{})
				tt.lose(r.session(faulty), faulty, store)
				ended := "error.type=" + tt.cause + ",leasehold.kind=" + tt.kind + "} 1"
				if tt.cause == "" {
					r.want("leasehold.hold.losses")
					ended = "{leasehold.kind=" + tt.kind + "} 1"
				} else {
					r.want("leasehold.hold.losses", "leasehold.hold.losses{"+ended)
				}
				if got := r.read("leasehold.hold.duration"); !strings.Contains(got, ended) {
					t.Errorf("%s\nwant: … %s …", got, ended)
				}
				r.want("leasehold.hold.active", "leasehold.hold.active{leasehold.kind="+tt.kind+"} 0")
				if tt.cause == "expired" || tt.cause == "session_expired" {
					r.want("leasehold.lease.remaining", "leasehold.lease.remaining{} 0")
				}
			})
		})
	}
}

// The remaining time of the lease falls while heartbeats fail, and can be read at any time.
func TestMetricsOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer faulty.Close()
		r := record(t, dsyncotel.Options{})
		s := r.session(faulty)
		mu := s.Mutex("k")
		mu.Lock()
		r.want("leasehold.lease.remaining") // not known before the first heartbeat
		time.Sleep(ttl)
		left := gauge(t, r)
		if left <= (lease - ttl/2).Seconds() {
			t.Errorf("%v s of the lease are left, with heartbeats every %v", left, ttl/3)
		}
		faulty.Cut()
		time.Sleep(time.Second)
		if now := gauge(t, r); now-left > -0.99 || now-left < -1.01 {
			t.Errorf("%v s of the lease are left, and %v s were left a second ago", now, left)
		}
		<-mu.Lost()
		r.want("leasehold.lease.remaining", "leasehold.lease.remaining{} 0")
		faulty.Heal()
		mu.Unlock()
		mu.Lock()
		time.Sleep(ttl)
		if left := gauge(t, r); left <= (lease - ttl/2).Seconds() {
			t.Errorf("the new session has %v s of its lease left", left)
		}
		mu.Unlock()
		r.want("leasehold.session",
			"leasehold.session.starts{} 2", "leasehold.session.losses{error.type=expired} 1")
		if got := r.read("leasehold.heartbeat"); !strings.Contains(got, "{} ") || !strings.Contains(got, "{error.type=timeout} ") {
			t.Errorf("want heartbeats with and without a time-out, got:\n%s", got)
		}
		if got := r.read("leasehold.store.errors"); !strings.Contains(got, "{error.type=timeout,leasehold.store.operation=Heartbeat} ") {
			t.Errorf("want a time-out of a Heartbeat among the store's errors, got:\n%s", got)
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		r.want("leasehold.lease.remaining")
	})
}

// gauge returns leasehold.lease.remaining.
func gauge(t *testing.T, r *recorded) float64 {
	t.Helper()
	synctest.Wait()
	for _, m := range r.metrics() {
		if m.Name == "leasehold.lease.remaining" {
			return floatGauge(t, m)
		}
	}
	t.Fatal("no leasehold.lease.remaining")
	return 0
}

func TestMetricsOfClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		r := record(t, dsyncotel.Options{})
		r.session(store).Mutex("k").Lock()
		for _, d := range []time.Duration{2 * time.Second, -time.Minute, -time.Minute} {
			time.Sleep(ttl)
			store.Skew(d)
		}
		time.Sleep(ttl)
		r.want("leasehold.clock",
			"leasehold.clock.jumps{leasehold.clock.direction=ahead} 1",
			"leasehold.clock.jumps{leasehold.clock.direction=back} 2")
	})
}

// deadlock keeps two sessions in a deadlock for a minute, long enough for session a to detect it.
// Session a holds x and waits for y; session b holds y and waits for x.
func deadlock(a, b *dsync.Session) {
	ctx, cancel := context.WithCancel(background)
	x, y := a.Mutex("x"), b.Mutex("y")
	x.Lock()
	y.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { a.Mutex("y").LockContext(ctx) })
	wg.Go(func() { b.Mutex("x").LockContext(ctx) })
	time.Sleep(time.Minute)
	cancel()
	wg.Wait()
	x.Unlock()
	y.Unlock()
}

func TestMetricsOfDeadlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		r := record(t, dsyncotel.Options{})
		deadlock(r.session(store), newSession(t, store, nil))
		r.want("leasehold.deadlocks", "leasehold.deadlocks{} 1")
	})
}

// The queue's length counts the waiters of all processes.
func TestMetricsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		r := record(t, dsyncotel.Options{Attributes: []attribute.KeyValue{attribute.String("shard", "a")}})
		s := r.session(store)
		if _, err := r.ObserveQueues(s, ""); err == nil {
			t.Error("an empty key is accepted")
		}
		stop, err := r.ObserveQueues(s, "busy", "idle")
		noErr(t, err)
		s.Mutex("busy").Lock()
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		for range 3 {
			other := newSession(t, store, nil)
			wg.Go(func() { other.Mutex("busy").LockContext(ctx) })
		}
		synctest.Wait()
		r.want("leasehold.queue",
			"leasehold.queue.length{leasehold.key=busy,shard=a} 3", "leasehold.queue.length{leasehold.key=idle,shard=a} 0")
		cancel()
		wg.Wait()
		time.Sleep(ttl)
		r.want("leasehold.queue",
			"leasehold.queue.length{leasehold.key=busy,shard=a} 0", "leasehold.queue.length{leasehold.key=idle,shard=a} 0")
		if err := stop(); err != nil {
			t.Error(err)
		}
		r.want("leasehold.queue")

		if _, err := r.ObserveQueues(s, "busy"); err != nil {
			t.Fatal(err)
		}
		s.Close(background)
		r.want("leasehold.queue") // and no error
	})
}

// Keys for which Options.Key returns the same value share a time series.
func TestKeysAreCutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{
			Attributes: []attribute.KeyValue{attribute.String("shard", "a")},
			Key: func(key string) string {
				prefix, _, ok := strings.Cut(key, "/")
				if !ok {
					return ""
				}
				return prefix
			},
		})
		s := r.session(dsynctest.NewMemory())
		for _, key := range []string{"orders/1", "orders/2", "other"} {
			turn(s.Mutex(key))
		}
		r.want("leasehold.grants",
			"leasehold.grants{leasehold.grant.source=store,leasehold.key=orders,leasehold.kind=mutex,shard=a} 2",
			"leasehold.grants{leasehold.grant.source=store,leasehold.kind=mutex,shard=a} 1")
		r.want("leasehold.hold.active",
			"leasehold.hold.active{leasehold.key=orders,leasehold.kind=mutex,shard=a} 0",
			"leasehold.hold.active{leasehold.kind=mutex,shard=a} 0")
		r.want("leasehold.session.starts", "leasehold.session.starts{shard=a} 1")
	})
}

// A user's own hooks are called, too.
func TestOwnHooksBesideTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{})
		granted := 0
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: &dsync.Hooks{
			Granted: func(dsync.HoldInfo) { granted++; panic("own") },
		}})
		s.AddHooks(r.Hooks())
		turn(s.Mutex("k"))
		r.want("leasehold.grants", "leasehold.grants{leasehold.grant.source=store,leasehold.kind=mutex} 1")
		if granted != 1 {
			t.Errorf("the user's own hook was called %d times, want once", granted)
		}
	})
}

// A deaf store's listeners fail when its channel is closed.
type deaf struct {
	driver.Store
	closed chan struct{}
}

var errDeaf = errors.New("the listener broke")

func (d *deaf) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-d.closed:
			cancel(errDeaf)
		case <-ctx.Done():
		}
	}()
	d.Store.Listen(ctx, session, keys, f)
	return context.Cause(ctx)
}

// ObserveSession records whether the session listens, why it polls if it does not listen, and how
// many records the store has.
func TestMetricsOfASession(t *testing.T) {
	for _, polling := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			var s *dsync.Session
			r := record(t, dsyncotel.Options{})
			breaks := &deaf{store, make(chan struct{})}
			if polling {
				s = r.session(store)
			} else {
				s = r.session(breaks)
			}
			stop, err := r.ObserveSession(s)
			noErr(t, err)
			r.want("leasehold.listener", "leasehold.listener.ready{} 0") // the session has no reason to listen yet
			mu := s.Mutex("k")
			mu.Lock()
			turn(s.Mutex("other"))
			time.Sleep(time.Hour)
			want := "leasehold.listener.ready{} 1"
			if polling {
				want = "leasehold.listener.ready{error.type=unsupported} 0"
			}
			r.want("leasehold.listener", want)
			r.want("leasehold.store", "leasehold.store.size{} 3") // the records of two keys and a session
			if !polling {
				close(breaks.closed)
				time.Sleep(time.Minute)
				r.want("leasehold.listener", "leasehold.listener.ready{error.type=*errors.errorString} 0")
			}
			mu.Unlock()
			if err := stop(); err != nil {
				t.Error(err)
			}
			r.want("leasehold.listener")
		})
	}
}
