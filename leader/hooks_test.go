package leader_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// outage cuts f off for half a TTL, and returns when the hooks have been called for everything that happened in that
// time.
func outage(f *dsynctest.Faulty) {
	f.Cut()
	time.Sleep(ttl / 2)
	f.Heal()
	time.Sleep(ttl)
	synctest.Wait()
}

// If an Election neither campaigns nor observes, its session does not refer to the Election. So the Election's hooks
// are not called, and it can be garbage-collected.
func TestUnusedElectionsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		const n = 10_000
		var called int
		made := make([]weak.Pointer[leader.Options], n)
		for i := range made {
			opt := &leader.Options{}
			opt.Hooks = &leader.Hooks{
				Elected:   func(context.Context, leader.Term) { called++ },
				Refreshed: func(leader.Reading) { called++; runtime.KeepAlive(opt) },
			}
			electionOf(t, s, opt)
			made[i] = weak.Make(opt)
		}
		campaign(t, electionOf(t, s, nil))
		outage(f)
		if called != 0 {
			t.Errorf("hooks of elections that were never used were called %d times", called)
		}
		runtime.GC()
		left := 0
		for _, p := range made {
			if p.Value() != nil {
				left++
			}
		}
		if left > 1 { // the last Election may still be referenced from the stack
			t.Errorf("%d of %d unused elections are kept", left, n)
		}
	})
}
