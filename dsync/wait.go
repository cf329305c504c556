package dsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// acquire waits for its turn in this process, and for w. On error it has neither.
func (s *Session) acquire(ctx context.Context, w want) (*hold, error) {
	if ctx.Err() != nil {
		return nil, waitError(ctx, nil)
	}
	w.began = time.Now()
	for {
		h, err := s.enter(ctx, w)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, waitError(ctx, nil)
		case err != nil || h != nil:
			return h, err
		}
		if err = s.sealed(w); err == nil {
			h, err = s.wait(ctx, &w)
		}
		s.asked(w, err)
		if !errors.Is(err, errAside) {
			return h, err
		}
		w.back = true
	}
}

// tryAcquire acquires w if it is free, here and everywhere; else the error is a
// *HeldError.
func (s *Session) tryAcquire(ctx context.Context, w want) (*hold, error) {
	if ctx.Err() != nil {
		return nil, waitError(ctx, nil)
	}
	w.began = time.Now()
	h, holder, ok, err := s.tryEnter(ctx, w)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, waitError(ctx, nil)
	case err != nil || h != nil:
		return h, err
	case !ok:
		return nil, s.heldHere(w.key, holder)
	}
	h, err = s.try(ctx, &w)
	if err != nil {
		s.mu.Lock()
		s.queues[w.key].leave(w.weight)
		s.mu.Unlock()
	}
	return h, err
}

// wait acquires w: it stands in the store's line until it is granted. It goes on
// through failures of the store and losses of the session. Errors are those of
// persist.
func (s *Session) wait(ctx context.Context, w *want) (h *hold, err error) {
	err = s.persist(ctx, func(last *error) error {
		p, err := s.present(ctx)
		if err == nil {
			h, err = p.wait(ctx, w, last)
		}
		return err
	})
	return h, err
}

// persist calls f until it succeeds: through failures of the store, the last of
// which f may note, and at once again where errOver says that the session was lost.
// An error is ctx's, with the store's last error added, ErrClosed, or one that
// repeating can't mend.
func (s *Session) persist(ctx context.Context, f func(last *error) error) error {
	retry := s.backoff()
	var last error
	for {
		err := f(&last)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return waitError(ctx, last)
		case errors.Is(err, errOver):
			continue
		case final(ctx, err):
			return err
		}
		last = err
		if err := s.sleep(ctx, retry.next()); errors.Is(err, ErrClosed) {
			return err
		}
	}
}

// final reports whether err ends a wait, and is not a failure of the store that
// repeating may mend.
func final(ctx context.Context, err error) bool {
	return ctx.Err() != nil || isAnswer(err) || errors.Is(err, ErrClosed) || errors.Is(err, errOver) || errors.Is(err, errAside)
}

// waitError returns why ctx ended, with the store's last error if there is one:
// who waited for an unreachable store should see that it was.
func waitError(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w (the store's last error: %w)", err, last)
	}
	return err
}

// wait stands in line with one claim until it is granted or given up.
func (p *presence) wait(ctx context.Context, w *want, last *error) (_ *hold, err error) {
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(err) }()
	retry := p.s.backoff()
	mismatched := false
	for {
		st, g, err := h.ask(ctx, true)
		if g != nil {
			return h, h.accept(ctx, g)
		}
		switch {
		case err == nil:
			err = h.rest(ctx, st)
		case errors.Is(err, ErrMismatch) && !mismatched:
			err = h.outlive(ctx, err)
			mismatched = err == nil
		}
		switch {
		case err == nil:
			retry.reset()
			continue
		case final(ctx, err):
			return nil, err
		}
		*last = err
		if err := h.sleep(ctx, retry.next()); err != nil {
			return nil, err
		}
	}
}

// try acquires w if it is free, else the error is a *HeldError. A try that sessions
// stand in the way of that have lapsed buries them and asks again, for as long as it
// finds more of them: programs that only ever try must get over a crash too.
func (s *Session) try(ctx context.Context, w *want) (*hold, error) {
	for {
		p, err := s.present(ctx)
		if err != nil {
			return nil, err
		}
		h, err := p.try(ctx, w)
		if !errors.Is(err, errOver) {
			return h, err
		}
	}
}

func (p *presence) try(ctx context.Context, w *want) (_ *hold, err error) {
	s := p.s
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(err) }()
	late, mismatched := false, false
	for {
		st, g, err := h.ask(ctx, false)
		switch {
		case g != nil:
			return h, h.accept(ctx, g)
		case errors.Is(err, errLate) && !late:
			late = true // once more, now that the store's clock is known
			continue
		case errors.Is(err, ErrMismatch) && !mismatched:
			mismatched = true
			if err := h.outlive(ctx, err); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		}
		if err := s.look(ctx, h.ahead); err != nil {
			return nil, err
		}
		if err := s.bury(ctx, h.ahead); err != nil {
			return nil, err
		}
		if !h.newlyDead() {
			return nil, s.heldError(ctx, st)
		}
	}
}

// newlyDead reports whether sessions stand in the way that are known to be dead, and
// that the last attempt did not name.
func (h *hold) newlyDead() bool {
	for _, id := range h.s.dead(h.ahead) {
		if !slices.Contains(h.named, id) {
			return true
		}
	}
	return false
}

// outlive gets over those that use the key as another kind, or size, if they are
// dead: it buries who has lapsed, and has the next attempt name them. If nobody is
// dead it returns the mismatch.
func (h *hold) outlive(ctx context.Context, mismatch error) error {
	s := h.s
	st, err := s.Load(ctx, h.claim.Key)
	if err != nil {
		return err
	}
	ids := st.sessions(h.p.id)
	if err := s.look(ctx, ids); err != nil {
		return err
	}
	if err := s.bury(ctx, ids); err != nil {
		return err
	}
	if len(s.dead(ids)) == 0 {
		return mismatch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.ahead = ids
	return nil
}
