package dsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A waiter gives up while its request is under way. If the request is then answered, giving up costs one Release, which
// is sent after the answer.
func TestGivingUpDuringARequestCostsOneRelease(t *testing.T) {
	for _, held := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			slow, released := timesOf(t, memory, dsynctest.MethodRelease)
			s := newSession(t, newFaulty(t, slow, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method == dsynctest.MethodAcquire {
					return dsynctest.Fault{ReplyDelay: time.Second}
				}
				return dsynctest.Fault{}
			}), nil)
			other := newSession(t, memory, nil).Mutex("k")
			if held {
				lock(t, other)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(background, time.Second/2)
			defer cancel()
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
			if d := time.Since(start); d != time.Second/2 {
				t.Errorf("the waiter gave up after %v, want when ctx ended", d)
			}
			time.Sleep(ttl)
			if all := released(); len(all) != 1 || all[0].Sub(start) < time.Second {
				t.Errorf("released at %v, want once, after %v", all, start.Add(time.Second))
			}
			if n := len(holders(t, memory, "k")) + queueLength(t, memory, "k"); held != (n == 1) || n > 1 {
				t.Errorf("%d claims are left; held by the other session: %t", n, held)
			}
			if held {
				other.Unlock()
			}
		})
	}
}
