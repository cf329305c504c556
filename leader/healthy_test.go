package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// If Run's function continues after its term has ended and the grace is over, the process is
// unhealthy until the function returns.
func TestFunctionThatOutlivesItsTermIsUnhealthy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		e := electionOf(t, s, nil)
		ctx, cancel := context.WithCancel(background)
		end := make(chan struct{})
		var deaf bool
		go e.Run(ctx, func(term context.Context) error {
			<-term.Done()
			if deaf = !deaf; deaf {
				<-end
			}
			return nil
		})
		synctest.Wait()
		f.Cut()
		time.Sleep(2 * ttl)
		f.Heal()
		synctest.Wait()
		if err := s.Healthy(); !errors.Is(err, dsync.ErrStillInUse) {
			t.Errorf("while the function runs: %v, want %v", err, dsync.ErrStillInUse)
		}
		close(end)
		synctest.Wait()
		if err := s.Healthy(); err != nil {
			t.Errorf("when it has returned: %v, want nil", err)
		}
		cancel()
	})
}

// Without Run, a lost term leaves the process unhealthy until it calls Resign or is elected again.
func TestTermThatIsNotResignedIsUnhealthy(t *testing.T) {
	ends := map[string]func(e *leader.Election){
		"Resign":   func(e *leader.Election) { e.Resign(background) },
		"Campaign": func(e *leader.Election) { campaign(t, e) },
	}
	for name, end := range ends {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			e := electionOf(t, s, nil)
			term := campaign(t, e)
			go admin.New(s).Break(background, "e")
			<-term.Done()
			time.Sleep(ttl)
			if err := s.Healthy(); !errors.Is(err, dsync.ErrStillInUse) {
				t.Errorf("before %s: %v, want %v", name, err, dsync.ErrStillInUse)
			}
			end(e)
			if err := s.Healthy(); err != nil {
				t.Errorf("after %s: %v, want nil", name, err)
			}
		})
	}
}
