package dsynctest

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

const (
	maxLine   = 10_000   // claims in the line of one key
	maxAhead  = 8        // waiters in State.Ahead, but
	maxShown  = 1000     // of Load, and sessions of Members, keys of Keys
	maxWoken  = 1000     // who is told that a key was sealed
	maxFormer = 16       // former limits, of which some may never have been
	maxValue  = 64 << 10 // bytes of a published value, or of a result
	tokenStep = 1024     // least distance of two tokens of a key, but
	tokenRoom = 65_536   // after one that has all of the key and yields
)

// A record is what a [Memory] keeps of one key.
type record struct {
	kind    dsync.Kind
	limit   int64
	former  []int64 // limits of this kind before that, the latest last
	token   int64   // the last one's, or one in its room
	term    int64   // grants while the kind was KindElection
	holders []dsync.Holder
	line    []waiting
	inLine  map[string]bool // claim ids of line: joining is not linear in it
	used    time.Time       // of the last change

	value     []byte // what the holder with the token publisher published,
	publisher int64  // and nobody's when that holds no more
	published int64  // how many values that one published so far

	sealed bool
	result []byte
}

func newRecord() *record { return &record{inLine: make(map[string]bool)} }

// An effect is what a command did to a record: what those who watch are told.
type effect struct {
	changed  bool
	granted  []grant
	woken    []dsync.Waiter // who must ask once more
	yielding []dsync.Holder // who is told of those in line
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
	yield bool
}

// acquire is the edit of Acquire, with the settle after it. On an error it has
// changed nothing.
func (r *record) acquire(c dsync.Claim, wait bool, dead []string, notAfter, now time.Time) (fx effect, err error) {
	gone := func(session string) bool { return slices.Contains(dead, session) }
	holders := without(r.holders, func(h dsync.Holder) bool {
		if h.Until.IsZero() {
			return gone(h.Session)
		}
		return ended(h, now)
	})
	line := r.line
	if len(dead) > 0 {
		line = without(line, func(w waiting) bool { return gone(w.Session) })
	}

	inUse := len(holders)+len(line) > 0
	waits := r.inLine[c.ID] && !gone(c.Session)
	holds := slices.ContainsFunc(holders, func(h dsync.Holder) bool { return h.Claim == c.ID })
	if !waits && !holds && !r.suits(c, inUse) {
		return effect{}, r.mismatch(c.Key, c.Kind, c.Limit)
	}
	joins := !waits && !holds && !now.After(notAfter) && !r.sealed
	if joins && len(line) >= maxLine {
		return effect{}, fmt.Errorf("dsynctest: %w: %d claims wait for key %q, no more than that may", dsync.ErrRefused, maxLine, c.Key)
	}

	stood := len(r.line)
	fx.changed = len(holders) != len(r.holders) || len(line) != stood
	if len(line) != stood {
		clear(r.inLine)
		for _, w := range line {
			r.inLine[w.Claim] = true
		}
	}
	r.holders, r.line = holders, line
	if joins {
		r.join(c)
	}
	fx.granted = r.settle(now)
	left := !wait && r.leave(c.ID)
	if fx.changed = fx.changed || len(fx.granted) > 0 || joins != left; fx.changed {
		r.used = now
	}
	fx.yielding = r.yielding(stood, fx.granted)
	return fx, nil
}

// suits reports whether a claim may join, or could if the key were not sealed.
func (r *record) suits(c dsync.Claim, inUse bool) bool {
	switch {
	case r.sealed:
		return c.Kind == r.kind
	case r.knows(c):
		return c.Weight <= r.limit
	}
	return !inUse
}

// knows reports whether the claim comes with the key's limit, or one it had.
func (r *record) knows(c dsync.Claim) bool {
	return c.Kind == r.kind && (c.Limit == r.limit || slices.Contains(r.former, c.Limit))
}

func (r *record) mismatch(key string, kind dsync.Kind, limit int64) error {
	return &dsync.MismatchError{Key: key, Kind: r.kind, WantKind: kind, Limit: r.limit, WantLimit: limit}
}

// join puts a claim that suits the key in line.
func (r *record) join(c dsync.Claim) {
	if !r.knows(c) { // the key is free
		r.kind, r.limit, r.former = c.Kind, c.Limit, nil
	}
	w := waiting{dsync.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight}, c.Lease, c.Yield}
	if c.First {
		r.line = slices.Insert(r.line, 0, w)
	} else {
		r.line = append(r.line, w)
	}
	r.inLine[c.ID] = true
}

// settle grants from the head of the line while it fits.
func (r *record) settle(now time.Time) (granted []grant) {
	var sum int64
	for _, h := range r.holders {
		sum += h.Weight
	}
	for len(r.line) > 0 && r.line[0].Weight <= r.limit-sum {
		w := r.line[0]
		r.line[0] = waiting{}
		r.line = r.line[1:]
		delete(r.inLine, w.Claim)

		r.token = max(r.token+tokenStep, now.UnixMilli()*tokenStep)
		h := dsync.Holder{Claim: w.Claim, Session: w.Session, Weight: w.Weight, Token: r.token, Since: now, Yield: w.yield}
		if w.yield && w.Weight == r.limit {
			r.token += tokenRoom - tokenStep
		}
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

// yielding returns the holders that are told of those in line, of whom there
// were stood before the command.
func (r *record) yielding(stood int, granted []grant) []dsync.Holder {
	if len(r.line) == 0 || stood > 0 && len(granted) == 0 {
		return nil
	}
	return without(r.holders, func(h dsync.Holder) bool { return !h.Yield })
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

// ended reports whether the end of a hold has come.
func ended(h dsync.Holder, now time.Time) bool {
	return !h.Until.IsZero() && !now.Before(h.Until)
}

// ceilMilli rounds up to the millisecond, the resolution of the store's clock:
// rounding down could make a lease of none of it, which means for ever.
func ceilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
