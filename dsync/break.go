package dsync

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Break has those that hold key now give it up, and waits until they have. Each is
// told (its Lost closes, with [ErrRevoked] as the cause), and has its session's
// grace to stop, or until it unlocks; then whoever is first in line has the key. It
// is not taken from anyone who was not told: if a holder's process can't be
// reached, Break waits until its session has lapsed; if there is none any more,
// until its [Lease] is over. On a key that nobody holds it does nothing.
//
// A process is told at once, where the store can notify it, else with its next heartbeat.
//
// ctx bounds the wait; who was asked to give the key up will. The error is ctx's,
// with the store's last error added if there was one, [ErrClosed], or [ErrKey].
func (s *Session) Break(ctx context.Context, key string) error {
	err := CheckKey(key)
	if err == nil {
		b := breaking{key: key, pressed: make(map[string]bool)}
		err = s.persist(ctx, func(*error) error { return s.breakHolders(ctx, &b) })
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
	pressed map[string]bool // claims whose sessions were asked
}

// left reads the state of the key with those of its holders only that are to give it
// up and did not yet.
func (b *breaking) left(ctx context.Context, s *Session) (State, error) {
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
	var left []Holder
	for _, h := range st.Holders {
		if b.targets[h.Claim] && (h.Until.IsZero() || st.Now.Before(h.Until)) {
			left = append(left, h)
		}
	}
	st.Holders, st.Ahead = left, nil
	return st, nil
}

// breakHolders waits until none of the targets holds the key. Who breaks what nobody
// holds need not be registered.
func (s *Session) breakHolders(ctx context.Context, b *breaking) error {
	st, err := b.left(ctx, s)
	if err != nil || len(st.Holders) == 0 {
		return err
	}
	p, err := s.present(ctx)
	if err != nil {
		return err
	}
	return p.breakHolders(ctx, b)
}

// breakHolders waits until none of the targets holds the key. errOver: the presence
// was lost.
func (p *presence) breakHolders(ctx context.Context, b *breaking) error {
	s := p.s
	changed := p.observe(b.key)
	defer p.unobserve(b.key, changed)
	for {
		st, err := b.left(ctx, s)
		if err != nil || len(st.Holders) == 0 {
			return err
		}
		if err := p.revokeHolders(ctx, &st, b.pressed); err != nil {
			return err
		}
		ids := st.sessions(p.id)
		if err := s.look(ctx, ids); err != nil {
			return err
		}
		if err := s.bury(ctx, ids); err != nil {
			return err
		}
		if dead := s.dead(ids); len(dead) > 0 {
			if err := p.drop(ctx, st, dead); err != nil {
				return err
			}
			continue
		}
		if err := p.pause(ctx, changed, st, ids); err != nil {
			return err
		}
	}
}

// drop drops the claims of the dead, by an attempt to acquire that was void before it
// was sent. A release of each would not do: since st was read, a holder that closed
// its session may have left its claim behind with an end, for the rest of its grace.
func (p *presence) drop(ctx context.Context, st State, dead []string) error {
	s := p.s
	s.mu.Lock()
	c := Claim{Key: st.Key, ID: p.claimID(), Session: p.id, Kind: st.Kind, Weight: 1, Limit: st.Limit}
	s.mu.Unlock()
	_, err := await(ctx, s, call(s, "Acquire", func(ctx context.Context) (State, error) {
		return s.store.Acquire(ctx, c, false, dead, time.Unix(0, 0))
	}))
	if errors.Is(err, ErrMismatch) {
		return nil // it is held as something else by now
	}
	return err
}

// pause waits until there may be something new of the holders in st, who live with
// the sessions ids.
func (p *presence) pause(ctx context.Context, changed <-chan struct{}, st State, ids []string) error {
	s := p.s
	s.mu.Lock()
	d := p.pollTime(1)
	for _, h := range st.Holders {
		if !h.Until.IsZero() {
			d = min(d, max(0, h.Until.Sub(st.Now)))
		}
	}
	s.mu.Unlock()
	return p.await(ctx, changed, s.soonest(ids, d))
}

// revokeHolders asks the sessions of those holders in st to give the key up that
// were not pressed yet.
func (p *presence) revokeHolders(ctx context.Context, st *State, pressed map[string]bool) error {
	s := p.s
	for _, h := range st.Holders {
		if pressed[h.Claim] {
			continue
		}
		r := Revocation{Key: st.Key, Claim: h.Claim}
		s.mu.Lock()
		here := h.Session == p.id || s.holds[h.Claim] != nil
		if here {
			s.revoke(p, r)
		}
		s.mu.Unlock()
		if !here {
			_, err := await(ctx, s, call(s, "Revoke", func(ctx context.Context) (struct{}, error) {
				return struct{}{}, s.store.Revoke(ctx, h.Session, r)
			}))
			if err != nil && !errors.Is(err, ErrSessionDead) {
				return err
			}
			if err == nil {
				s.notify(h.Session)
			}
		}
		pressed[h.Claim] = true
	}
	return nil
}
