package dsynctest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

const (
	maxLine   = 10_000   // claims in the line of one key
	maxAhead  = 8        // waiters in State.Ahead, but
	maxShown  = 1000     // of Load, and sessions of Members
	maxValue  = 64 << 10 // bytes of a published value
	tokenStep = 1024     // least distance of two tokens of a key
)

// A record is what a [Memory] keeps of one key.
type record struct {
	kind    dsync.Kind
	limit   int64
	token   int64
	term    int64 // grants while the kind was KindElection
	holders []dsync.Holder
	line    []waiting
	inLine  map[string]bool // claim ids of line: joining is not linear in it
	used    time.Time       // of the last change

	value     []byte // what the holder with the token publisher published,
	publisher int64  // and nobody's when that holds no more
}

// A grant is a new holder with its term.
type grant struct {
	dsync.Holder
	term int64 // 0 but of KindElection
}

// waiting is a claim in line.
type waiting struct {
	dsync.Waiter
	lease time.Duration
}

// acquire is the edit of Acquire, with the settle after it. On an error it has
// changed nothing.
func (r *record) acquire(c dsync.Claim, wait bool, dead []string, notAfter, now time.Time) (granted []grant, changed bool, err error) {
	gone := func(session string) bool { return slices.Contains(dead, session) }
	holders := without(r.holders, func(h dsync.Holder) bool {
		if h.Until.IsZero() {
			return gone(h.Session)
		}
		return !now.Before(h.Until)
	})
	line := r.line
	if len(dead) > 0 {
		line = without(line, func(w waiting) bool { return gone(w.Session) })
	}

	inUse := len(holders)+len(line) > 0
	if inUse && (r.kind != c.Kind || r.limit != c.Limit) {
		return nil, false, &dsync.MismatchError{
			Key:  c.Key,
			Kind: r.kind, WantKind: c.Kind,
			Limit: r.limit, WantLimit: c.Limit,
		}
	}
	waits := r.inLine[c.ID] && !gone(c.Session)
	holds := slices.ContainsFunc(holders, func(h dsync.Holder) bool { return h.Claim == c.ID })
	joins := !waits && !holds && !now.After(notAfter)
	if joins && len(line) >= maxLine {
		return nil, false, fmt.Errorf("dsynctest: %w: %d claims wait for key %q, no more than that may", dsync.ErrRefused, maxLine, c.Key)
	}

	changed = len(holders) != len(r.holders) || len(line) != len(r.line)
	if len(line) != len(r.line) {
		clear(r.inLine)
		for _, w := range line {
			r.inLine[w.Claim] = true
		}
	}
	r.holders, r.line = holders, line
	if joins {
		if !inUse {
			r.kind, r.limit = c.Kind, c.Limit
		}
		r.line = append(r.line, waiting{dsync.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight}, c.Lease})
		r.inLine[c.ID] = true
	}
	granted = r.settle(now)
	left := !wait && r.leave(c.ID)
	changed = changed || len(granted) > 0 || joins != left
	if changed {
		r.used = now
	}
	return granted, changed, nil
}

// settle grants from the head of the line while it fits.
func (r *record) settle(now time.Time) (granted []grant) {
	var sum int64
	for _, h := range r.holders {
		sum += h.Weight
	}
	for len(r.line) > 0 && sum+r.line[0].Weight <= r.limit {
		w := r.line[0]
		r.line[0] = waiting{}
		r.line = r.line[1:]
		delete(r.inLine, w.Claim)

		r.token = max(r.token+tokenStep, now.UnixMilli()*tokenStep)
		h := dsync.Holder{Claim: w.Claim, Session: w.Session, Weight: w.Weight, Token: r.token, Since: now}
		if w.lease > 0 {
			h.Until = now.Add(ceilMilli(w.lease))
		}
		r.holders = append(r.holders, h)
		g := grant{Holder: h}
		if r.kind == dsync.KindElection {
			r.term++
			g.term = r.term
		}
		granted = append(granted, g)
		sum += w.Weight
	}
	return granted
}

// leave takes a claim out of the line and reports whether it was there.
func (r *record) leave(claim string) bool {
	if !r.inLine[claim] {
		return false
	}
	delete(r.inLine, claim)
	i := r.position(claim)
	r.line = slices.Delete(r.line, i, i+1)
	return true
}

// position is the index of a claim that is in line. Who joined last is asked
// for most often: it looks from the end.
func (r *record) position(claim string) int {
	i := len(r.line) - 1
	for r.line[i].Claim != claim {
		i--
	}
	return i
}

// release is the edit of Release, with the settle after it.
func (r *record) release(claim string, keep time.Duration, now time.Time) (granted []grant, found, changed bool) {
	i := slices.IndexFunc(r.holders, func(h dsync.Holder) bool { return h.Claim == claim })
	switch {
	case i >= 0 && keep > 0:
		h := &r.holders[i]
		found = true
		if end := now.Add(ceilMilli(keep)); h.Until.IsZero() || end.Before(h.Until) {
			h.Until, changed = end, true // the session stays, to show whose it was
		}
	case i >= 0:
		r.holders = slices.Delete(r.holders, i, i+1)
		found, changed = true, true
	default:
		found = r.leave(claim)
		changed = found
	}
	if changed {
		r.used = now
		granted = r.settle(now)
	}
	return granted, found, changed
}

// publish stores the value of a claim and reports whether the claim holds.
func (r *record) publish(claim string, value []byte, now time.Time) (held, changed bool) {
	for _, h := range r.holders {
		if h.Claim != claim || !h.Until.IsZero() && !now.Before(h.Until) {
			continue
		}
		if r.publisher == h.Token && bytes.Equal(r.value, value) {
			return true, false
		}
		// Not nil, also if it is empty: that says that nothing was published.
		r.value, r.publisher, r.used = append([]byte{}, value...), h.Token, now
		return true, true
	}
	return false, false
}

// state is the record's state as the claim sees it, "" for nobody, with most of
// the line at the most.
func (r *record) state(key, claim string, now time.Time, most int) dsync.State {
	s := dsync.State{
		Key:     key,
		Now:     now,
		Kind:    r.kind,
		Limit:   r.limit,
		Token:   r.token,
		Holders: slices.Clone(r.holders),
		Waiting: len(r.line),
	}
	if r.kind == dsync.KindElection {
		s.Term = r.term
	}
	if slices.ContainsFunc(r.holders, func(h dsync.Holder) bool { return h.Token == r.publisher }) {
		s.Value = slices.Clone(r.value)
	}
	from, to := 0, min(len(r.line), most)
	if r.inLine[claim] {
		i := r.position(claim)
		s.Place = i + 1
		from, to = max(0, i-most), i
	}
	for _, w := range r.line[from:to] {
		s.Ahead = append(s.Ahead, w.Waiter)
	}
	return s
}

// idle reports whether a record can be deleted: it counts no terms, which would
// begin again, nobody holds or waits, nothing
// happened since old, and the tokens, which run ahead of the clock when there
// is more than one grant in a millisecond, are behind it by as much: so the
// first grant of a new record is greater.
func (r *record) idle(old time.Time) bool {
	return r.term == 0 && len(r.holders) == 0 && len(r.line) == 0 &&
		r.used.Before(old) && r.token+tokenStep <= old.UnixMilli()*tokenStep
}

// without returns s itself if drop is true of none of it, else a copy without
// those: what a caller was given of s stays as it is.
func without[E any](s []E, drop func(E) bool) []E {
	if !slices.ContainsFunc(s, drop) {
		return s
	}
	var kept []E
	for _, e := range s {
		if !drop(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// ceilMilli rounds up to the millisecond, the resolution of the store's clock:
// rounding down could make a lease of none of it, which means for ever.
func ceilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
