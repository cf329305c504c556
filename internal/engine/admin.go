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

// persist calls f until it succeeds. After a failure of the store it waits before the next call. After errOver, which
// means that the session was lost, it calls f again at once. The error is ErrClosed, an error that trying again cannot
// fix, or ctx's error with the store's last error added if there was one.
func (s *Session) persist(ctx context.Context, f func() error) error {
	retry := s.backoff()
	var last error
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return waitError(ctx, last)
		case errors.Is(err, errOver):
			continue
		case isAnswer(err) || errors.Is(err, core.ErrClosed):
			return err
		}
		last = err
		if err := s.wait(ctx, retry.next()); errors.Is(err, core.ErrClosed) {
			return err
		}
	}
}

// Forget removes what the store keeps about a key. If somebody holds the key or waits for it, the error is a
// *driver.HeldError.
func (s *Session) Forget(ctx context.Context, key string) error {
	err := CheckKey(key)
	if err == nil {
		var held *driver.HeldError
		err = s.persist(ctx, func() (err error) {
			held, err = s.forget(ctx, key)
			return err
		})
		if held != nil {
			return s.describe(ctx, *held)
		}
	}
	if err != nil {
		return fmt.Errorf("dsync: forget %q: %w", key, err)
	}
	return nil
}

// forget reads the key and asks the store to forget it if its token has not changed since. If the key was used in
// between, forget starts over.
func (s *Session) forget(ctx context.Context, key string) (*driver.HeldError, error) {
	for retry := s.backoff(); ; {
		st, err := s.Load(ctx, key)
		if err != nil || st.Token == 0 && st.Limit == 0 { // no record
			return nil, err
		}
		st.Holders = slices.DeleteFunc(st.Holders, func(h driver.Holder) bool { return h.Ended(st.Now) })
		if len(st.Holders) > 0 || st.Waiting > 0 {
			return core.HeldError(&st), nil
		}
		done, err := s.edit(ctx, "Forget", driver.Edit{Forget: &driver.Forget{Key: key, Token: st.Token}})
		if err != nil || done.Found {
			return nil, err
		}
		if err := s.wait(ctx, retry.next()); err != nil {
			return nil, err
		}
	}
}

// Resize sets the key's limit. After that, claims made with the old limit, given as from, count as if they had the new
// limit: see [driver.Resize]. Resize makes one attempt.
func (s *Session) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) error {
	_, err := s.edit(ctx, "Resize", driver.Edit{Resize: &driver.Resize{Key: key, Kind: kind, From: from, Limit: limit}})
	return err
}
