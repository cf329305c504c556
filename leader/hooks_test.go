package leader_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// An election that neither campaigns nor observes leaves nothing behind with its session: its hooks are
// not called, and it can be collected.
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
				StoreError: func(string, error) { called++; runtime.KeepAlive(opt) },
				Cycle:      func(leader.Status) { called++; runtime.KeepAlive(opt) },
			}
			electionOf(t, s, opt)
			made[i] = weak.Make(opt)
		}
		campaign(t, electionOf(t, s, nil))
		f.Cut()
		time.Sleep(ttl / 2)
		f.Heal()
		time.Sleep(ttl)
		synctest.Wait()
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
		if left > 1 { // the last one may still be on the stack
			t.Errorf("%d of %d unused elections are kept", left, n)
		}
	})
}

// StoreError is called from the first use of an election on, whatever that is.
func TestStoreErrorsAreReportedFromTheFirstUse(t *testing.T) {
	for name, use := range map[string]func(e *leader.Election){
		"Campaign":       func(e *leader.Election) { go e.Campaign(background) },
		"TryCampaign":    func(e *leader.Election) { e.TryCampaign(background) },
		"Run":            func(e *leader.Election) { go e.Run(background, nil) },
		"CampaignChan":   func(e *leader.Election) { e.CampaignChan(background) },
		"Observe":        func(e *leader.Election) { e.Observe(background) },
		"ObserveMembers": func(e *leader.Election) { e.ObserveMembers(background) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
					return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRegister}
				})
				s := newSession(t, f, nil)
				var reported atomic.Int64
				e := electionOf(t, s, &leader.Options{Hooks: &leader.Hooks{StoreError: func(string, error) { reported.Add(1) }}})
				use(e)
				time.Sleep(ttl / 5) // the first command has failed
				synctest.Wait()
				if n := reported.Load(); n != 1 {
					t.Errorf("%d errors were reported, want one", n)
				}
			})
		})
	}
}
