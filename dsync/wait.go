package dsync

import (
	"context"
	"errors"
	"fmt"
)

// errOver: the claim can't be granted any more, since its session was lost or
// its lease lapsed before it was dated. Ask again with a new one.
var errOver = errors.New("dsync: the claim was lost while asking")

// acquire waits for the turn in this process, and for w. On error it has neither.
func (s *Session) acquire(ctx context.Context, w want) (*hold, error) {
	err := s.enter(ctx, w.key)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, waitError(ctx, nil)
	case err != nil:
		return nil, err
	}
	h, err := s.wait(ctx, w)
	if err != nil {
		s.leave(w.key)
	}
	return h, err
}

// tryAcquire acquires w if it is free, here and everywhere; else the error is a
// *HeldError.
func (s *Session) tryAcquire(ctx context.Context, w want) (*hold, error) {
	if here, ok := s.tryEnter(w.key); !ok {
		return nil, s.heldHere(w.key, here)
	}
	h, err := s.try(ctx, w)
	if err != nil {
		s.leave(w.key)
	}
	return h, err
}

// wait acquires w: it stands in the store's line until it is granted. It goes on
// through failures of the store and losses of the session. An error is ctx's,
// with the store's last error added, ErrClosed, or an answer of the store that
// waiting can't mend.
func (s *Session) wait(ctx context.Context, w want) (*hold, error) {
	retry := s.backoff()
	var last error // of the store
	for {
		p, err := s.present(ctx)
		if err == nil {
			var h *hold
			if h, err = p.wait(ctx, w, &last); err == nil {
				return h, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, waitError(ctx, last)
		case errors.Is(err, errOver):
			continue
		case final(ctx, err):
			return nil, err
		}
		last = err
		if err := s.sleep(ctx, retry.next()); errors.Is(err, ErrClosed) {
			return nil, err
		}
	}
}

// final reports whether err ends a wait, and is not a failure of the store that
// repeating may mend.
func final(ctx context.Context, err error) bool {
	return ctx.Err() != nil || isAnswer(err) || errors.Is(err, ErrClosed) || errors.Is(err, errOver)
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
func (p *presence) wait(ctx context.Context, w want, last *error) (_ *hold, err error) {
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(true, err) }()
	retry := p.s.backoff()
	var st State
	for {
		g, err := h.ask(ctx, true, &st)
		if g != nil {
			return h, h.accept(ctx, *g)
		}
		if err == nil {
			err = h.rest(ctx, st)
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

// try acquires w if it is free, else the error is a *HeldError. A try that only
// sessions that have lapsed stand in the way of buries them and asks once more:
// programs that only ever try must get over a crash too.
func (s *Session) try(ctx context.Context, w want) (*hold, error) {
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

func (p *presence) try(ctx context.Context, w want) (_ *hold, err error) {
	s := p.s
	h, err := p.newHold(w)
	if err != nil {
		return nil, err
	}
	defer func() { h.settled(false, err) }()
	var st State
	for again := false; ; again = true {
		g, err := h.ask(ctx, false, &st)
		if err != nil {
			return nil, err
		}
		if g != nil {
			return h, h.accept(ctx, *g)
		}
		ids := s.sessions(st, p.id)
		if err := s.look(ctx, ids); err != nil {
			return nil, err
		}
		dead := len(s.dead(ids)) > 0
		if buried, err := s.bury(ctx, ids); err != nil {
			return nil, err
		} else if !dead && !buried || again {
			return nil, s.heldError(st)
		}
	}
}
