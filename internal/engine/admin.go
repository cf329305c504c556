package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// Break asks the current holders of key to give it up, and waits until they have.
func (s *Session) Break(ctx context.Context, key string) error {
	err := CheckKey(key)
	if err == nil {
		_, err = s.Acquire(ctx, Want{Key: key})
	}
	if errors.Is(err, core.ErrFree) {
		return nil
	}
	return fmt.Errorf("dsync: break %q: %w", key, err)
}

// Forget removes what the store keeps about a key. If somebody holds the key or waits for it, the error is a
// *driver.HeldError.
func (s *Session) Forget(ctx context.Context, key string) error {
	err := CheckKey(key)
	if err == nil {
		err = s.forget(ctx, key)
	}
	if held := (*driver.HeldError)(nil); errors.As(err, &held) {
		return s.describe(ctx, *held)
	}
	if err != nil {
		return fmt.Errorf("dsync: forget %q: %w", key, err)
	}
	return nil
}

// forget tries until the store answers, and the key was not used during the attempt.
func (s *Session) forget(ctx context.Context, key string) error {
	var last error // of the store
	for failed := 0; ; failed++ {
		done, err := s.tryForget(ctx, key)
		switch {
		case done, isAnswer(err), errors.Is(err, core.ErrClosed):
			return err
		case err != nil && ctx.Err() == nil:
			last = err
		}
		if err := s.wait(ctx, s.pause(failed)); errors.Is(err, core.ErrClosed) {
			return err
		} else if err != nil {
			return waitError(ctx, last)
		}
	}
}

// tryForget reads the key and asks the store to forget it if its token has not changed since. If it has, done is false.
func (s *Session) tryForget(ctx context.Context, key string) (done bool, err error) {
	st, err := s.Load(ctx, key)
	if err != nil {
		return false, err
	}
	st.Holders = slices.DeleteFunc(st.Holders, func(h driver.Holder) bool { return h.Ended(st.Now) })
	switch {
	case st.Token == 0 && st.Limit == 0: // no record
		return true, nil
	case len(st.Holders) > 0 || st.Waiting > 0:
		return true, core.HeldError(&st)
	}
	r, err := s.ask(ctx, core.Ask{Command: core.Command{Op: core.Forget, Edit: driver.Edit{Forget: &driver.Forget{Key: key, Token: st.Token}}}})
	return r.Found, err
}

// Resize sets the key's limit. After that, claims made with the old limit, given as from, count as if they had the new
// limit: see [driver.Resize]. Resize makes one attempt.
func (s *Session) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) error {
	_, err := s.ask(ctx, core.Ask{Command: core.Command{Op: core.Resize, Edit: driver.Edit{Resize: &driver.Resize{Key: key, Kind: kind, From: from, Limit: limit}}}})
	return err
}
