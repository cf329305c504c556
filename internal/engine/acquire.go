package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A Want describes what a caller wants to hold.
type Want = core.Want

// RWLimit is the limit of an RWMutex's key: see package dsync.
const RWLimit = 1 << 30

// Whole returns a Want for all of key, as kind.
func Whole(key string, kind driver.Kind) Want {
	return Want{Key: key, Kind: kind, Weight: 1, Limit: 1}
}

// maxPreference is the greatest preference of a candidate, and its negative is the least.
const maxPreference = 999_999

// Candidate returns a Want for a term of an election. Its tick ranks the candidates, because the store serves claims for
// earlier ticks first. The error reports that the preference is out of range.
func Candidate(election string, preference int) (Want, error) {
	w := Whole(election, driver.KindElection)
	w.Tick = int64(maxPreference + 1 - preference)
	if preference < -maxPreference || preference > maxPreference {
		return w, fmt.Errorf("the preference is %d; it must be between %d and %d", preference, -maxPreference, maxPreference)
	}
	return w, nil
}

// OnceTick is the one tick of a Once.
const OnceTick = 1

// TickAt returns the tick of a run scheduled for t: milliseconds since 1970, as in driver.Claim. The error reports why
// t can't be a scheduled time.
func TickAt(t time.Time) (tick int64, err error) {
	tick = t.UnixMilli()
	switch {
	case tick <= 0:
		return 0, fmt.Errorf("the tick is %s; it must be after 1970-01-01", t.Format(time.RFC3339Nano))
	case !t.Equal(time.UnixMilli(tick)):
		return 0, fmt.Errorf("the tick %s is not a whole number of milliseconds; it must be the time for which the run is scheduled, not the time at which it starts",
			t.Format(time.RFC3339Nano))
	}
	return tick, nil
}

// A SealedError answers a request for a tick that is over.
type SealedError = core.SealedError

// Acquire waits in this process's queue for the key, and then for the store to grant it. It keeps trying through
// failures of the store and losses of the session. The error is ErrClosed, an error that trying again cannot fix, or
// ctx's error with the store's last error added if there was one. If Acquire returns an error, the caller holds
// nothing.
func (s *Session) Acquire(ctx context.Context, w Want) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, waitError(ctx, nil)
	}
	now := time.Now()
	s.mu.Lock()
	h := s.spare
	if h == nil {
		h = new(Hold)
	}
	s.spare = nil
	s.calls++
	h.s, h.ctx, h.since = s, ctx, s.clock.at(now)
	h.acquire.Want, h.acquire.Call, h.acquire.Caller = w, s.calls, h
	s.stepAt(h.since, &h.acquire)
	if h.served() {
		got, err := h.got, h.denied
		if got != h {
			*h = Hold{}
			s.spare = h // nothing refers to h now, so the next RLock can reuse it
		}
		s.mu.Unlock()
		return got, err
	}
	served := make(chan struct{})
	h.waiting = served
	var hopeless <-chan time.Time
	if inner := scopeOf(ctx); inner != nil && !w.Try && s.waitsForItselfLocked(inner, &w) {
		timer := time.NewTimer(s.longWait())
		defer timer.Stop()
		hopeless = timer.C
	}
	s.mu.Unlock()

	for ctx.Err() == nil {
		select {
		case <-served:
			return h.got, h.denied
		case <-hopeless:
			s.reportNested(h)
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	last := s.core.Failure()
	if !h.served() {
		s.step(core.GiveUp{Call: &h.acquire})
	}
	got := h.got
	s.mu.Unlock()
	if got != nil { // ctx ended first; the release goes on in the background
		got.Unlock(driver.Release{})
	} else if h.denied != nil && !errors.Is(h.denied, core.ErrGivenUp) {
		return nil, h.denied
	}
	return nil, waitError(ctx, last)
}

// TryAcquire acquires w if the key is free, in this process and in the store; otherwise the error is a *HeldError. If
// sessions that hold the key or wait for it may have lapsed, TryAcquire expires those that have, and requests the key
// again. Otherwise a program that only tries would never get the key of a holder that has crashed.
func (s *Session) TryAcquire(ctx context.Context, w Want) (*Hold, error) {
	w.Try = true
	h, err := s.Acquire(ctx, w)
	if held := (*driver.HeldError)(nil); errors.As(err, &held) {
		return nil, s.describe(ctx, *held)
	}
	return h, err
}

// describe adds details to a try's error: who holds the key, and until when.
func (s *Session) describe(ctx context.Context, e driver.HeldError) error {
	s.mu.Lock()
	e.Here = e.Here || e.Session != "" && e.Session == s.core.Session() // the session itself may keep the key, for example with ReleaseAfter
	s.mu.Unlock()
	if e.Here {
		m := s.process
		e.Name, e.Host, e.PID = m.Name, m.Host, m.PID
		return &e
	}
	m, until := s.memberOf(ctx, e.Session)
	e.Name, e.Host, e.PID = m.Name, m.Host, m.PID
	if e.Until.IsZero() && !e.Since.IsZero() {
		e.Until = until
	}
	return &e
}

// memberOf returns the session's record, for display, and when the session will lapse if it sends no further
// heartbeat. If it cannot read the record, it returns zero values rather than an error.
func (s *Session) memberOf(ctx context.Context, id string) (m driver.Member, until time.Time) {
	s.mu.Lock()
	m, known := s.core.Member(id)
	until = s.core.Lapses(id)
	s.mu.Unlock()
	if known || id == "" {
		return m, until
	}
	read, now, err := s.readSessions(ctx, driver.SessionQuery{IDs: []string{id}})
	if err != nil || len(read) == 0 {
		return driver.Member{}, until
	}
	m = read[0]
	if lapses := m.LastHeartbeat.Add(m.TTL); !m.Expired && now.Before(lapses) {
		until = lapses
	}
	return m, until
}

// Hold acquires w. If the hold ends before its holder is done, the hold's slot in this process becomes free when the
// grace is over, even if the holder does nothing. Hold returns [ErrInvalidKey] and the errors of Acquire or, if w.Try is
// set, of TryAcquire.
func (s *Session) Hold(ctx context.Context, w Want) (h *Hold, err error) {
	if err := CheckKey(w.Key); err != nil {
		return nil, err
	}
	w.Auto = true
	if w.Try {
		h, err = s.TryAcquire(ctx, w)
		err = TryError("hold", w.Key, err)
	} else if h, err = s.Acquire(ctx, w); err != nil {
		err = fmt.Errorf("dsync: %s %q: %w", w.Kind, w.Key, err)
	}
	return h, err
}

// waitError returns why ctx ended, together with the store's last error if there is one, so that a caller can see that
// it waited because the store was unreachable.
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

// TryError adds to err which operation was tried. It returns a *driver.HeldError unchanged, since that error already
// names the key.
func TryError(what, key string, err error) error {
	if err == nil || errors.Is(err, driver.ErrHeld) {
		return err
	}
	return fmt.Errorf("dsync: try to %s %q: %w", what, key, err)
}
