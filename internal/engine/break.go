package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Break asks those who hold key now to give it up, and waits until they have.
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

// A breaking is one call of Break.
type breaking struct {
	key     string
	targets map[string]bool // claims that held the key when it began; nil: not read yet
	asked   map[string]bool // claims whose sessions were asked to give up the key
}

// holders reads the state of the key. Of its holders it returns only the targets that have not given
// up the key yet.
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
		if b.targets[h.Claim] && (h.Until.IsZero() || st.Now.Before(h.Until)) {
			left = append(left, h)
		}
	}
	st.Holders, st.WaitersAhead = left, nil
	return st, nil
}

// breakHolders waits until none of the targets holds the key. If nobody holds it, the session
// does not register.
func (s *Session) breakHolders(ctx context.Context, b *breaking) error {
	st, err := b.holders(ctx, s)
	if err != nil || len(st.Holders) == 0 {
		return err
	}
	sl, err := s.registered(ctx)
	if err != nil {
		return err
	}
	return sl.breakHolders(ctx, b)
}

// breakHolders asks the targets to give up the key and waits until none of them holds it. The
// error errOver means that the session lease was lost.
func (sl *sessionLease) breakHolders(ctx context.Context, b *breaking) error {
	s := sl.s
	changed := sl.observe(b.key)
	defer sl.unobserve(b.key, changed)
	for {
		st, err := b.holders(ctx, s)
		if err != nil || len(st.Holders) == 0 {
			return err
		}
		if err := sl.revokeHolders(ctx, &st, b.asked); err != nil {
			return err
		}
		ids := sessionsIn(&st, sl.id)
		if err := s.expireLapsed(ctx, ids); err != nil {
			return err
		}
		if expired := s.expiredAmong(ids); len(expired) > 0 {
			if err := sl.drop(ctx, st, expired); err != nil {
				return err
			}
			continue
		}
		if err := sl.waitForHolders(ctx, changed, st, ids); err != nil {
			return err
		}
	}
}

// drop drops the claims of expired sessions. It sends an attempt to acquire that names them, with
// a notAfter long past so that the attempt itself cannot join. Releasing each claim would be
// wrong: since st was read, a holder may have closed its session and left its claim in the store
// for the rest of its grace.
func (sl *sessionLease) drop(ctx context.Context, st driver.State, expired []string) error {
	s := sl.s
	s.mu.Lock()
	c := driver.Claim{Key: st.Key, ID: sl.claimID(), Session: sl.id, Kind: st.Kind, Weight: 1, Limit: st.Limit}
	s.mu.Unlock()
	_, err := request(ctx, s, "Acquire", func(ctx context.Context) (driver.State, error) {
		edited, err := s.store.Edit(ctx, driver.Edit{Join: &driver.Join{Claim: c, Expired: expired, NotAfter: time.Unix(0, 0)}})
		s.notify(edited.Notices)
		return edited.State, err
	})
	if errors.Is(err, driver.ErrMismatch) {
		return nil // the key is in use as another kind by now
	}
	return err
}

// waitForHolders waits until the holders in st may have changed. ids are the sessions with which
// they live.
func (sl *sessionLease) waitForHolders(ctx context.Context, changed <-chan struct{}, st driver.State, ids []string) error {
	s := sl.s
	s.mu.Lock()
	d := sl.pollTime(1)
	for _, h := range st.Holders {
		if !h.Until.IsZero() {
			d = min(d, max(0, h.Until.Sub(st.Now)))
		}
	}
	s.mu.Unlock()
	return s.waitFor(ctx, changed, sl.over, s.untilLapse(ids, d))
}

// revokeHolders asks the sessions of the holders in st to give up the key, except for claims in
// asked, whose sessions were already asked.
func (sl *sessionLease) revokeHolders(ctx context.Context, st *driver.State, asked map[string]bool) error {
	s := sl.s
	for _, h := range st.Holders {
		if asked[h.Claim] {
			continue
		}
		r := driver.Revocation{Key: st.Key, Claim: h.Claim}
		s.mu.Lock()
		here := h.Session == sl.id || s.claims[h.Claim] != nil
		if here {
			s.revoke(sl, r)
		}
		s.mu.Unlock()
		if !here {
			_, err := request(ctx, s, "Revoke", func(ctx context.Context) (struct{}, error) {
				notices, err := s.store.Revoke(ctx, h.Session, r)
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

// revoke records that a claim of this session lease is revoked, and makes its holder give it up.
// The holder is notified and has the grace to stop. s.mu must be held.
func (sl *sessionLease) revoke(r driver.Revocation) {
	if sl.cause != nil || sl.revoked[r] {
		return
	}
	if sl.revoked == nil {
		sl.revoked = make(map[driver.Revocation]bool)
	}
	sl.revoked[r] = true
	sl.s.revoke(sl, r)
}

// revoke gives up the claim r.Claim, which belongs to this session. s.mu must be held.
func (s *Session) revoke(sl *sessionLease, r driver.Revocation) {
	switch c := s.claims[r.Claim]; {
	case c == nil && s.ends():
		// Close may have left the claim in the store for the rest of its holder's grace.
	case c == nil:
		// A fixed lease that outlived its holder, or a claim whose grant was never known here.
		sl.orphan(driver.Claim{Key: r.Key, ID: r.Claim, Session: sl.id})
	case c.state == releasing:
		c.revoked = true
	case c.state == pending:
		c.revoked = true
		c.requestAgain()
	case c.lingers():
		c.stopLingering()
	default:
		c.hold.windDown(ErrRevoked, true)
	}
}

// revocationsDone returns the revocations whose claims are gone. s.mu must be held.
func (sl *sessionLease) revocationsDone() []driver.Revocation {
	var done []driver.Revocation
	for r := range sl.revoked {
		if sl.s.claims[r.Claim] == nil {
			done = append(done, r)
		}
	}
	return done
}

// Resize changes the key's limit from from to limit. It makes one attempt.
func (s *Session) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) error {
	_, err := request(ctx, s, "Resize", func(ctx context.Context) (struct{}, error) {
		edited, err := s.store.Edit(ctx, driver.Edit{Resize: &driver.Resize{Key: key, Kind: kind, From: from, Limit: limit}})
		s.notify(edited.Notices)
		return struct{}{}, err
	})
	return err
}
