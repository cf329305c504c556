package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// on returns a decide function that applies a fault to the nth request of a method, counted from 1, or to all of
// them if n is 0.
func on(method dsynctest.Method, n int, fault dsynctest.Fault) func(dsynctest.Request) dsynctest.Fault {
	seen := 0
	return func(r dsynctest.Request) dsynctest.Fault {
		if r.Method == method {
			if seen++; n == 0 || seen == n {
				return fault
			}
		}
		return dsynctest.Fault{}
	}
}

// Each case sends one Acquire with a fault. It checks how long the call takes, whether the call gets an answer, whether
// the claim then holds the key, and how many Acquires reach the store.
func TestFaultyRequests(t *testing.T) {
	const timeout = 10 * time.Second
	for _, tt := range []struct {
		name     string
		fault    dsynctest.Fault
		answered bool
		after    time.Duration // when the call must return
		held     bool          // whether the claim holds the key at that time
		commands int           // how many Acquires reach the store in all
	}{
		{"none", dsynctest.Fault{}, true, 0, true, 1},
		{"delay", dsynctest.Fault{Delay: time.Second}, true, time.Second, true, 1},
		{"reply delay", dsynctest.Fault{ReplyDelay: time.Second}, true, time.Second, true, 1},
		{"both delays", dsynctest.Fault{Delay: time.Second, ReplyDelay: 2 * time.Second}, true, 3 * time.Second, true, 1},
		{"late", dsynctest.Fault{Delay: timeout + time.Second}, false, timeout, false, 1},
		{"late reply", dsynctest.Fault{ReplyDelay: timeout + time.Second}, false, timeout, true, 1},
		{"lost request", dsynctest.Fault{LoseRequest: true}, false, timeout, false, 0},
		{"lost reply", dsynctest.Fault{LoseReply: true}, false, timeout, true, 1},
		{"twice", dsynctest.Fault{Again: time.Minute}, true, 0, true, 2},
		{"lost, later delivered", dsynctest.Fault{LoseRequest: true, Again: time.Minute}, false, timeout, false, 1},
		{"hang", dsynctest.Fault{Hang: time.Minute}, true, time.Minute, true, 1},
		{"lost and hang", dsynctest.Fault{LoseRequest: true, Hang: time.Minute}, false, time.Minute, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := dsynctest.NewMemory()
				f := dsynctest.NewFaulty(m, on(dsynctest.MethodAcquire, 0, tt.fault))
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				c := claim("k", "a", 1)
				start := time.Now()
				s, _, err := storecmd.Acquire(ctx, f, c, true, nil, start.Add(time.Hour))
				if took := time.Since(start); took != tt.after {
					t.Errorf("returned after %v, want %v", took, tt.after)
				}
				if tt.answered && (err != nil || !holds(s, c)) {
					t.Errorf("Acquire = %+v, %v; want it held", s, err)
				}
				if !tt.answered && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire = %v, want context.DeadlineExceeded", err)
				}
				if s, _ := m.Load(t.Context(), "k", 1000); holds(s, c) != tt.held {
					t.Errorf("held when Acquire returned: %t, want %t", holds(s, c), tt.held)
				}
				f.Wait()
				if got := m.Counts().Commands[dsynctest.MethodAcquire]; got != tt.commands {
					t.Errorf("the store saw the Acquire %d times, want %d", got, tt.commands)
				}
			})
		})
	}
}

func TestFaultyAsksAboutEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []dsynctest.Request
		f := dsynctest.NewFaulty(dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			got = append(got, r)
			return dsynctest.Fault{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		c := claim("k", "a", 1)
		c.Lease = time.Minute
		f.Register(ctx, driver.Member{ID: "a", TTL: time.Minute})
		f.Heartbeat(ctx, "a", nil)
		f.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: "a.1"})
		f.Expire(ctx, "b", false)
		go f.Listen(ctx, "a", []string{"k"}, func(driver.Notice) {})
		synctest.Wait()
		storecmd.Acquire(ctx, f, c, true, nil, soon())
		storecmd.Extend(ctx, f, c, 1)
		storecmd.Publish(ctx, f, c, 1, []byte("value"))
		storecmd.Resize(ctx, f, "k", c.Kind, 1, 2)
		n, _ := f.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: "a.2"})
		f.Notify(ctx, append(n, driver.Notice{Type: driver.NoticeChange, Key: "k"}))
		synctest.Wait()
		f.Notify(ctx, nil)
		storecmd.Release(ctx, f, c, driver.Release{})
		f.Load(ctx, "k", 1000)
		f.Keys(ctx, driver.KeyQuery{Prefix: "k", Limit: 10})
		storecmd.Members(ctx, f, "a")
		f.Observe(ctx, "a", 1, []string{"k"})
		storecmd.Observers(ctx, f, "k", "", 10)
		storecmd.Queue(ctx, f, "k")
		f.Sweep(ctx, "a", driver.SweepState{}, time.Hour)
		storecmd.Unregister(ctx, f, "a")
		cancel()
		want := []dsynctest.Request{
			{Method: dsynctest.MethodRegister, Session: "a"},
			{Method: dsynctest.MethodHeartbeat, Session: "a"},
			{Method: dsynctest.MethodRevoke, Session: "a", Claim: "a.1", Key: "k"},
			{Method: dsynctest.MethodExpire, Session: "b"},
			{Method: dsynctest.MethodListen, Session: "a"},
			{Method: dsynctest.MethodNotice, Session: "a", Notice: driver.NoticeReady},
			{Method: dsynctest.MethodAcquire, Session: "a", Claim: "a.1", Key: "k"},
			{Method: dsynctest.MethodExtend, Session: "a", Claim: "a.1", Key: "k"},
			{Method: dsynctest.MethodPublish, Session: "a", Claim: "a.1", Key: "k"},
			{Method: dsynctest.MethodResize, Key: "k"},
			{Method: dsynctest.MethodRevoke, Session: "a", Claim: "a.2", Key: "k"},
			{Method: dsynctest.MethodNotify, Session: "a", Claim: "a.2", Key: "k", Notice: driver.NoticeRevoke},
			{Method: dsynctest.MethodNotice, Session: "a", Claim: "a.2", Key: "k", Notice: driver.NoticeRevoke},
			{Method: dsynctest.MethodNotice, Session: "a", Key: "k", Notice: driver.NoticeChange},
			{Method: dsynctest.MethodNotify},
			{Method: dsynctest.MethodRelease, Session: "a", Claim: "a.1", Key: "k"},
			{Method: dsynctest.MethodLoad, Key: "k"},
			{Method: dsynctest.MethodKeys},
			{Method: dsynctest.MethodMembers},
			{Method: dsynctest.MethodObserve, Session: "a"},
			{Method: dsynctest.MethodObservers, Key: "k"},
			{Method: dsynctest.MethodQueue, Key: "k"},
			{Method: dsynctest.MethodSweep, Session: "a"},
			{Method: dsynctest.MethodUnregister, Session: "a"},
		}
		for i := range want {
			want[i].Seq = i + 1
		}
		if !slices.Equal(got, want) {
			t.Errorf("decide was called for\n%+v, want\n%+v", got, want)
		}
	})
}

func TestFaultyCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodAcquire, 0, dsynctest.Fault{Delay: time.Second, ReplyDelay: time.Second}))
		ctx := t.Context()
		acquire := func(key string) <-chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, _, err := storecmd.Acquire(ctx, f, claim(key, "a", 1), true, nil, soon())
				done <- err
			}()
			return done
		}
		answerUnderWay := acquire("answer")
		time.Sleep(1500 * time.Millisecond)
		requestUnderWay := acquire("request")
		time.Sleep(300 * time.Millisecond)
		f.Cut()
		f.Cut() // a second Cut changes nothing
		cut := acquire("cut")
		time.Sleep(10 * time.Second)
		f.Heal()
		f.Heal()
		healed := acquire("healed")
		for _, tt := range []struct {
			name string
			done <-chan error
			err  error
			held bool
		}{
			{"answer", answerUnderWay, context.DeadlineExceeded, true},
			{"request", requestUnderWay, context.DeadlineExceeded, false},
			{"cut", cut, context.DeadlineExceeded, false},
			{"healed", healed, nil, true},
		} {
			if err := <-tt.done; !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
			}
			if s, _ := m.Load(ctx, tt.name, 1000); len(s.Holders) > 0 != tt.held {
				t.Errorf("%s: held %t, want %t", tt.name, len(s.Holders) > 0, tt.held)
			}
		}
		f.Close()
	})
}

// If the store is cut off and healed while a request is under way, the request arrives, but its reply is lost.
func TestFaultyShortCutLosesReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodAcquire, 1, dsynctest.Fault{Delay: 10 * time.Second}))
		go func() {
			time.Sleep(time.Second)
			f.Cut()
			time.Sleep(time.Second)
			f.Heal()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := storecmd.Acquire(ctx, f, claim("k", "a", 1), true, nil, soon()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want context.DeadlineExceeded", err)
		}
		if s, _ := f.Load(t.Context(), "k", 1000); len(s.Holders) != 1 {
			t.Errorf("holders %+v, want one", s.Holders)
		}
	})
}

func TestFaultyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Again: time.Hour, Hang: time.Hour}
		})
		hanging := make(chan struct{})
		go func() {
			defer close(hanging)
			storecmd.Acquire(t.Context(), f, claim("k", "a", 1), true, nil, soon())
		}()
		synctest.Wait()
		start := time.Now()
		f.Close()
		<-hanging
		f.Close()
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		if n := m.Counts().Total(); n != 1 {
			t.Errorf("the store saw %d requests, want the repeated one dropped", n)
		}
		// The rest of the test runs without faults.
		if _, _, err := storecmd.Release(t.Context(), f, claim("k", "a", 1), driver.Release{}); err != nil || time.Since(start) > 0 {
			t.Errorf("Release after Close: %v after %v, want nil at once", err, time.Since(start))
		}
	})
}

// decide may call Cut at any request.
func TestFaultyDecideMayCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *dsynctest.Faulty
		f = dsynctest.NewFaulty(dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Seq == 2 {
				f.Cut()
			}
			return dsynctest.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Load(ctx, "k", 1000); err != nil {
			t.Errorf("first request: %v", err)
		}
		if _, err := f.Load(ctx, "k", 1000); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second request: %v, want context.DeadlineExceeded", err)
		}
	})
}
