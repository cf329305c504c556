package dsync_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// After an Extend, as after an Acquire, the deadline counts from the time at which the request was sent.
func TestExtendCountsFromTheSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodExtend {
				return dsynctest.Fault{ReplyDelay: time.Second}
			}
			return dsynctest.Fault{}
		})
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, ttl)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 4)
		sent := time.Now()
		if _, err := l.Extend(background); err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		if d := time.Since(sent); d != lease {
			t.Errorf("the hold was lost %v after the Extend was sent, want %v", d, lease)
		}
		l.Release(background)
	})
}

// The end of a lease is not computed from the time of a repeated request, because the reply may report the grant of an
// earlier request.
func TestLeaseIsNotDatedByARepeatedRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodAcquire {
				return dsynctest.Fault{}
			}
			asked++
			return dsynctest.Fault{LoseReply: asked == 1}
		})
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, ttl)
		if err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		if d := time.Until(l.Until()); asked != 2 || d < margin+grace {
			t.Errorf("after %d attempts: lost %v before its end, want at least a margin and a grace", asked, d)
		}
		l.Release(background)
	})
}
