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
)

// wake sends a NoticeWake for claim n of session a to the listeners of that session.
func wake(m *dsynctest.Memory, n int) {
	c := claim("k", "a", n)
	m.Notify(context.Background(), []driver.Notice{{Type: driver.NoticeWake, Session: c.Session, Key: c.Key, Claim: c.ID}})
}

func TestFaultyListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodNotice, 3, dsynctest.Fault{Again: time.Second}))
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error)
		start := func() {
			go func() {
				done <- f.Listen(ctx, "a", nil, func(n driver.Notice) { got = append(got, n.Claim) })
			}()
			synctest.Wait()
		}
		send := func(n int) {
			wake(m, n)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		start()
		send(1)
		send(2) // is delivered twice
		f.Cut()
		send(3) // is lost
		f.Heal()
		send(4)
		if want := []string{"", "a.1", "a.2", "a.2", "a.4"}; !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Listen = %v, want context.Canceled", err)
		}

		// A Listen that begins while the store is cut off waits for Heal.
		ctx, cancel = context.WithCancel(t.Context())
		got = nil
		f.Cut()
		start()
		send(5)
		if got != nil {
			t.Errorf("heard while cut off: %q", got)
		}
		f.Heal()
		synctest.Wait()
		send(6)
		if want := []string{"", "a.6"}; !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		cancel()
		<-done
	})
}

func TestFaultyListenFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		decide func(dsynctest.Request) dsynctest.Fault
		want   []string
	}{
		{"lost", on(dsynctest.MethodListen, 0, dsynctest.Fault{LoseRequest: true}), nil},
		{"silent", on(dsynctest.MethodListen, 0, dsynctest.Fault{LoseReply: true}), nil},
		{"opens late", on(dsynctest.MethodListen, 0, dsynctest.Fault{Delay: time.Second}), []string{"", "a.2", "a.3"}},
		{"notice lost", on(dsynctest.MethodNotice, 2, dsynctest.Fault{LoseReply: true}), []string{"", "a.2", "a.3"}},
		{"notice late, and those behind it", on(dsynctest.MethodNotice, 2, dsynctest.Fault{Delay: 30 * time.Second}), []string{"", "a.1", "a.2", "a.3"}},
		{"notice twice", on(dsynctest.MethodNotice, 2, dsynctest.Fault{Again: time.Second}), []string{"", "a.1", "a.1", "a.2", "a.3"}},
		{"notice again after others", on(dsynctest.MethodNotice, 2, dsynctest.Fault{Again: 3 * time.Second}), []string{"", "a.1", "a.2", "a.1", "a.3"}},
		{"notice late and alone", on(dsynctest.MethodNotice, 2, dsynctest.Fault{LoseRequest: true, Again: 3 * time.Second}), []string{"", "a.2", "a.1", "a.3"}},
		{"notice first late, then again", on(dsynctest.MethodNotice, 2, dsynctest.Fault{Delay: 2 * time.Second, Again: time.Second}), []string{"", "a.1", "a.1", "a.2", "a.3"}},
		{"notice later than the Listen", on(dsynctest.MethodNotice, 2, dsynctest.Fault{LoseRequest: true, Again: time.Hour}), []string{"", "a.2", "a.3"}},
		{"hang", on(dsynctest.MethodListen, 0, dsynctest.Fault{Hang: 2 * time.Minute}), []string{"", "a.1", "a.2", "a.3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := dsynctest.NewMemory()
				f := dsynctest.NewFaulty(m, tt.decide)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []string
				done := make(chan error, 1)
				start := time.Now()
				go func() {
					done <- f.Listen(ctx, "a", nil, func(n driver.Notice) { got = append(got, n.Claim) })
				}()
				synctest.Wait()
				for i := range 3 {
					wake(m, i+1)
					time.Sleep(2 * time.Second)
				}
				err := <-done
				want := time.Minute
				if tt.name == "hang" {
					want = 2 * time.Minute
				}
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != want {
					t.Errorf("Listen = %v after %v, want context.DeadlineExceeded after %v", err, took, want)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("heard %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A repeated notice waits until the running call of the listener's function returns. It is dropped if the Listen ends
// first, or if the Faulty is closed before the notice is due.
func TestFaultyListenCallsOneAtATime(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := dsynctest.NewMemory()
			f := dsynctest.NewFaulty(m, on(dsynctest.MethodNotice, 0, dsynctest.Fault{Again: time.Second}))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			calls, heard := 0, 0
			done := make(chan struct{})
			wake(m, 1) // this notice is lost, because nobody listens yet
			go func() {
				defer close(done)
				f.Listen(ctx, "a", nil, func(driver.Notice) {
					if calls++; calls > 1 {
						t.Error("called while a call is running")
					}
					time.Sleep(5 * time.Second)
					calls--
					heard++
				})
			}()
			time.Sleep(time.Millisecond)
			wake(m, 2)
			wake(m, 3)
			if closed {
				time.Sleep(12 * time.Second) // notice 2 is being delivered for the first time; until now, only NoticeReady was repeated
				f.Close()
			}
			<-done
			if want := 6; !closed && heard != want || closed && heard >= want {
				t.Errorf("heard %d notices, want %d: all of them twice, unless the Faulty was closed (closed %t)", heard, want, closed)
			}
		})
	}
}

// A fault of a Notify affects all listeners.
func TestFaultyNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, func(r dsynctest.Request) dsynctest.Fault {
			switch {
			case r.Method != dsynctest.MethodNotify:
			case r.Notice == driver.NoticeRevoke:
				return dsynctest.Fault{LoseRequest: true}
			case r.Notice == driver.NoticeWake:
				return dsynctest.Fault{Delay: time.Second, Again: 3 * time.Second}
			}
			return dsynctest.Fault{}
		})
		var got []driver.NoticeType
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error)
		go func() {
			done <- m.Listen(ctx, "a", nil, func(n driver.Notice) { got = append(got, n.Type) })
		}()
		synctest.Wait()
		for _, n := range []driver.NoticeType{driver.NoticeRevoke, driver.NoticeWake, driver.NoticeYield} {
			go func() {
				notices := []driver.Notice{{Type: n, Session: "a", Key: "k", Claim: "a.1"}}
				f.Notify(ctx, notices)
				notices[0].Session = "changed" // must not change what was sent
			}()
			synctest.Wait()
		}
		f.Wait()
		<-done
		want := []driver.NoticeType{driver.NoticeReady, driver.NoticeYield, driver.NoticeWake, driver.NoticeWake}
		if !slices.Equal(got, want) {
			t.Errorf("heard notices of types %v, want %v", got, want)
		}
	})
}
