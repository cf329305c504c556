package dsynctest

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

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
	if r.sealed {
		s.Sealed, s.Value = true, append([]byte{}, r.result...)
	} else if slices.ContainsFunc(r.holders, func(h dsync.Holder) bool { return h.Token == r.publisher }) {
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

// idle reports whether a record can be deleted: it is not sealed, which is for
// ever, counts no terms, which would begin again, nobody holds or waits, nothing
// happened since old, and the tokens, which run ahead of the clock when there
// is more than one grant in a millisecond, are behind it by as much: so the
// first grant of a new record is greater.
func (r *record) idle(old time.Time) bool {
	return !r.sealed && r.term == 0 && len(r.holders) == 0 && len(r.line) == 0 &&
		r.used.Before(old) && r.token+tokenStep <= old.UnixMilli()*tokenStep
}
