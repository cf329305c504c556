package dsync

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// giveUp tells every holder, waits for them within ctx and the grace, releases
// what the session holds and waits for, and unregisters it.
func (s *Session) giveUp(ctx context.Context) error {
	s.asking.Wait() // closing ends their waits; they release what they asked for
	type holder struct {
		*hold
		freed <-chan struct{}
	}
	var holding []holder
	s.mu.Lock()
	p := s.presence
	for _, h := range s.holds {
		switch h.state {
		case held, told:
			h.tell(ErrClosed)
			holding = append(holding, holder{h, h.whenFreed()})
		case parked:
			h.unpark()
		}
	}
	s.mu.Unlock()

	grace := time.Now().Add(s.opt.Grace)
	wait, cancel := context.WithDeadline(ctx, grace)
	defer cancel()
	for _, h := range holding {
		select {
		case <-h.freed:
		case <-wait.Done():
		}
	}

	// The releases, some at a time. A holder that is not done though its grace is
	// not over keeps the rest of it: ctx ended the wait, not the grace. The store counts
	// it by its clock, which may run ahead, or be moved by up to the margin.
	const atATime = 32
	var o Outcome
	if left := time.Until(grace); left > 0 {
		o.Keep = left + left/1000 + s.opt.Margin
	}
	var g errgroup.Group
	g.SetLimit(atATime)
	for _, h := range holding {
		s.mu.Lock()
		if h.state != told {
			s.mu.Unlock()
			continue
		}
		h.state = spent
		done := h.retireLocked(o)
		s.mu.Unlock()
		g.Go(func() error {
			if err := <-done; err != nil {
				return fmt.Errorf("release of %q: %w", h.claim.Key, err)
			}
			return nil
		})
	}
	err := g.Wait()
	s.mu.Lock()
	s.gaveUp = true
	s.mu.Unlock()
	s.retiring.Wait() // what holders and waiters have begun to release themselves
	if p == nil {
		return err
	}

	// Stop the heartbeat, await it, then unregister.
	close(p.quit)
	<-p.done
	if p.why() != nil || err != nil && o.Keep > 0 {
		// Lost, or a holder's grace may be running: it is left to lapse.
		return err
	}
	a := attempt(s, "Unregister", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.store.Unregister(ctx, p.id)
	})
	if err == nil && a.err != nil {
		err = fmt.Errorf("unregister: %w", a.err)
	}
	return err
}
