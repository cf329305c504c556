package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// Break asks the current holders of key to give it up, and waits until they have.
func (s *Session) Break(ctx context.Context, key string) error {
	err := CheckKey(key)
	if err == nil {
		b := breaking{key: key, asked: make(map[string]bool)}
		err = s.persist(ctx, func() error { return s.breakHolders(ctx, &b) })
	}
	if err != nil {
		return fmt.Errorf("dsync: break %q: %w", key, err)
	}
	return nil
}

// breaking is the state of one call of Break.
type breaking struct {
	key     string
	targets map[string]bool // claims that held the key when Break first read it; nil: not read yet
	asked   map[string]bool // claims whose sessions were asked to give up the key
}

// holders returns the state of the key. Its Holders are only the targets that have not given up the key yet.
func (b *breaking) holders(ctx context.Context, s *Session) (driver.State, error) {
	st, err := s.Load(ctx, b.key)
	if err != nil {
		return st, err
	}
	if b.targets == nil {
		b.targets = make(map[string]bool)
		for _, h := range st.Holders {
			b.targets[h.Claim] = true
		}
	}
	var left []driver.Holder
	for _, h := range st.Holders {
		if b.targets[h.Claim] && !h.Ended(st.Now) {
			left = append(left, h)
		}
	}
	st.Holders, st.WaitersAhead = left, nil
	return st, nil
}

// breakHolders waits until none of the targets holds the key. If none of them holds it now, the session does not
// register.
func (s *Session) breakHolders(ctx context.Context, b *breaking) error {
	st, err := b.holders(ctx, s)
	if err != nil || len(st.Holders) == 0 {
		return err
	}
	reg, err := s.registered(ctx)
	if err != nil {
		return err
	}
	return reg.breakHolders(ctx, b)
}

// breakHolders asks the targets to give up the key and waits until none of them holds it. If the session is lost, the
// error is errOver.
func (reg *registration) breakHolders(ctx context.Context, b *breaking) error {
	s := reg.s
	changed := s.watch(b.key)
	defer s.unwatch(b.key, changed)
	lives := make(map[string]time.Time)
	for {
		st, err := b.holders(ctx, s)
		if err != nil || len(st.Holders) == 0 {
			return err
		}
		if err := s.revokeHolders(ctx, &st, b.asked); err != nil {
			return err
		}
		expired, left, err := s.expireLapsed(ctx, core.SessionsIn(&st, reg.id), lives)
		if err != nil {
			return err
		}
		if len(expired) > 0 {
			if err := reg.drop(ctx, st, expired); err != nil {
				return err
			}
			continue
		}
		for _, h := range st.Holders {
			if !h.Until.IsZero() {
				left = min(left, max(0, h.Until.Sub(st.Now)))
			}
		}
		if err := s.waitFor(ctx, changed, reg.over, min(left, s.pollTime())); err != nil {
			return err
		}
	}
}

// expireLapsed expires those sessions in ids that have lapsed. lives maps session ids to the earliest time at which
// each session can lapse. expireLapsed reads the sessions whose time is missing or has passed, and updates lives. It
// returns the expired sessions, and how long it takes until another session may lapse.
func (s *Session) expireLapsed(ctx context.Context, ids []string, lives map[string]time.Time) (expired []string, left time.Duration, err error) {
	var due []string
	for _, id := range ids {
		if time.Until(lives[id]) <= 0 {
			due = append(due, id)
		}
	}
	for some := range slices.Chunk(due, core.MaxRead) {
		members, now, err := s.readSessions(ctx, "Members", driver.SessionQuery{IDs: some})
		if err != nil {
			return nil, 0, err
		}
		for _, m := range members {
			if !m.Expired {
				lives[m.ID] = time.Now().Add(m.LastHeartbeat.Add(m.TTL).Sub(now))
			}
		}
	}
	left = driver.MaxDuration
	for _, id := range ids {
		if time.Until(lives[id]) > 0 {
			left = min(left, time.Until(lives[id]))
			continue
		}
		// The sessions may have been read from stale data, so only Expire decides.
		l, err := request(ctx, s, "Expire", func(ctx context.Context) (time.Duration, error) { return s.store.Expire(ctx, id, false) })
		switch {
		case err != nil:
			return nil, 0, err
		case l <= 0:
			expired = append(expired, id)
		default:
			lives[id] = time.Now().Add(l)
			left = min(left, l)
		}
	}
	return expired, left, nil
}

// drop removes the claims of expired sessions. It sends an Acquire that names these sessions in Expired. The Acquire
// never joins the queue, because its NotAfter is long past. Releasing each claim would be wrong: since st was read, a
// holder may have closed its session and left its claim in the store for the rest of its grace.
func (reg *registration) drop(ctx context.Context, st driver.State, expired []string) error {
	s := reg.s
	s.mu.Lock()
	s.drops++
	id := fmt.Sprintf("%s.%d", reg.id, 1<<62+s.drops) // the Core's claims have smaller numbers
	s.mu.Unlock()
	c := driver.Claim{Key: st.Key, ID: id, Session: reg.id, Kind: st.Kind, Weight: 1, Limit: st.Limit}
	_, err := s.edit(ctx, "Acquire", driver.Edit{Acquire: &driver.Acquire{Claim: c, Expired: expired, NotAfter: time.Unix(0, 0)}})
	if errors.Is(err, driver.ErrMismatch) {
		return nil // the key is now in use as another kind
	}
	return err
}

// revokeHolders asks the sessions of the holders in st to give up the key, except for the claims in the map asked,
// which were revoked before.
func (s *Session) revokeHolders(ctx context.Context, st *driver.State, asked map[string]bool) error {
	for _, h := range st.Holders {
		if asked[h.Claim] {
			continue
		}
		s.mu.Lock()
		here := h.Session == s.core.Session() || s.core.Knows(h.Claim)
		if here {
			s.step(core.Revoked{Key: st.Key, Claim: h.Claim})
		}
		s.mu.Unlock()
		if !here {
			_, err := request(ctx, s, "Revoke", func(ctx context.Context) (struct{}, error) {
				notices, err := s.store.Revoke(ctx, h.Session, driver.Revocation{Key: st.Key, Claim: h.Claim})
				s.notify(notices)
				return struct{}{}, err
			})
			if err != nil && !errors.Is(err, driver.ErrSessionExpired) {
				return err
			}
		}
		asked[h.Claim] = true
	}
	return nil
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
