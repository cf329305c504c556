package dsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 5: if the key is granted before the waiter's listener is open, the waiter learns of the grant when the
// listener opens, not only by its next poll.
func TestGrantBeforeTheListenerIsReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodListen {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		held := newSession(t, memory, nil).Mutex("k")
		mu := newSession(t, slow, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second/2, held.Unlock)
		start := time.Now()
		lock(t, mu)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("the key was locked after %v, want when the listener was ready", d)
		}
		mu.Unlock()
	})
}

// Promise 5: a notice may arrive while a request is under way. It takes effect even if the store composed the reply to
// that request earlier.
func TestNoticeDuringAnAttemptIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const poll = time.Minute
		memory := dsynctest.NewMemory()
		asked, succeed := 0, make(chan struct{})
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodAcquire || r.Key != "k" {
				return dsynctest.Fault{}
			}
			if asked++; asked == 2 { // the first request joins the queue; this request is a poll
				time.AfterFunc(time.Second/2, func() { close(succeed) })
			}
			return dsynctest.Fault{ReplyDelay: time.Second}
		})
		a, b := newSession(t, memory, nil), newSession(t, slow, &dsync.Options{PollInterval: poll, AlwaysListen: true})
		run := make(chan error, 1)
		go func() {
			run <- a.Once("k").Do(background, func(context.Context) error { <-succeed; return nil })
		}()
		lock(t, b.Mutex("warm"))
		synctest.Wait()
		var sealed time.Time
		go func() { <-succeed; sealed = time.Now() }()
		if err := b.Once("k").Do(background, unwanted(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := time.Since(sealed); d > poll/2 {
			t.Errorf("the waiter returned %v after the Once was done, want at once", d)
		}
		if err := <-run; err != nil {
			t.Error(err)
		}
	})
}

// If a listener breaks, it is reopened.
func TestBrokenListenerIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &breakingStore{Memory: dsynctest.NewMemory()}
		held := newSession(t, store.Memory, nil).Mutex("k")
		mu := newSession(t, store, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second, held.Unlock)
		start := time.Now()
		lock(t, mu)
		if d := time.Since(start); d > 2*time.Second || store.opened != 2 {
			t.Errorf("the key was locked after %v, and %d listeners were opened, want at most 2s and 2 listeners", d, store.opened)
		}
		mu.Unlock()
	})
}

// A breakingStore breaks its first listener as soon as it is open.
type breakingStore struct {
	*dsynctest.Memory
	opened int
}

func (s *breakingStore) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	if s.opened++; s.opened == 1 {
		f(driver.Notice{Type: driver.NoticeReady})
		return errors.New("the connection broke")
	}
	return s.Memory.Listen(ctx, session, keys, f)
}

// If a listener always breaks as soon as it is open, it is reopened with back-off. Each opening costs a heartbeat and a
// request by every waiter.
func TestReopeningAListenerBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		held := newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		s := newSession(t, brittle{memory}, &dsync.Options{TTL: 30 * time.Second})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		go s.Mutex("k").LockContext(ctx)
		time.Sleep(10 * time.Second)
		before := memory.Counts().Commands
		time.Sleep(time.Minute)
		after := memory.Counts().Commands
		// The back-off is between a twenty-fourth and a twelfth of the TTL.
		const most = 60 / (30.0 / 24)
		for _, m := range []dsynctest.Method{dsynctest.MethodListen, dsynctest.MethodHeartbeat, dsynctest.MethodAcquire} {
			if n := after[m] - before[m]; n > 2*most {
				t.Errorf("%d %s in a minute, want at most twice %v", n, m, most)
			}
		}
	})
}

// A brittle store breaks each listener as soon as it is open.
type brittle struct{ *dsynctest.Memory }

func (b brittle) Listen(_ context.Context, _ string, _ []string, f func(driver.Notice)) error {
	f(driver.Notice{Type: driver.NoticeReady})
	time.Sleep(2 * time.Millisecond)
	return errors.New("broken")
}
