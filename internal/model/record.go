package model

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	maxFormer = 16    // former limits, including any that were never in force
	maxWoken  = 1_000 // waiters that a seal notifies
)

// A Record is the record of one key. The zero Record stands for a key that has no record in the store.
//
// Edits never change the elements of a record's slices, so a record stays valid after an edit. But like append, an
// edit may use the spare capacity of a slice. Make two edits of the same record only after [Record.Clip].
type Record struct {
	Kind       driver.Kind
	Limit      int64
	Former     []int64   // former limits of this kind, the latest last
	Token      int64     // token of the latest grant, or a greater one reserved for its holder
	Term       int64     // grants while Kind was KindElection
	Holders    []Holder  // in the order of their grants
	Queue      []Waiter  // in the order in which they are served
	Sealed     int64     // the greatest tick that has succeeded; 0: none
	Result     []byte    // of that tick
	LastChange time.Time // when an edit last changed the record
}

// A Holder is a claim that holds the key.
type Holder struct {
	driver.Holder
	Term  int64  // 0 unless the key's kind is KindElection
	Value []byte // the published value; nil: none
	Seq   int64  // of the Publish that set Value

	Extended int64 // Seq of the last Extend; 0: none
}

// A Waiter is a claim in the queue.
type Waiter struct {
	driver.Waiter
	Yield bool
	Value string
}

// Clip returns r without spare capacity, so that edits of the result do not affect edits of r.
func (r Record) Clip() Record {
	r.Holders, r.Queue = slices.Clip(r.Holders), slices.Clip(r.Queue)
	return r
}

// InUse reports whether somebody holds the key or waits for it.
func (r Record) InUse() bool { return len(r.Holders)+len(r.Queue) > 0 }

// Over reports whether the key is sealed up to the tick or a later one.
func (r Record) Over(tick int64) bool { return r.Sealed > 0 && tick <= r.Sealed }

// Holder returns the hold of a claim, and whether the claim holds the key.
func (r Record) Holder(claim string) (Holder, bool) {
	i := r.holder(claim)
	if i < 0 {
		return Holder{}, false
	}
	return r.Holders[i], true
}

func (r Record) holder(claim string) int {
	return slices.IndexFunc(r.Holders, func(h Holder) bool { return h.Claim == claim })
}

// Position returns the claim's position in the queue, 1 for the first, or 0 if it does not wait. It searches from the
// end, because most calls are about a claim that has just joined.
func (r Record) Position(claim string) int {
	n := len(r.Queue)
	for n > 0 && r.Queue[n-1].Claim != claim {
		n--
	}
	return n
}

// HeldBy returns the holders that belong to a session. It sets the fields that a store returns for a [driver.KeyQuery]
// with a Session.
func (r Record) HeldBy(session string) (own []driver.Holder) {
	for _, h := range r.Holders {
		if h.Session == session {
			own = append(own, driver.Holder{Claim: h.Claim, Session: session, Token: h.Token, Until: h.Until})
		}
	}
	return own
}

// State returns the record's State as seen by a claim ("" for none). The parameter most limits how many waiters the
// State lists.
func (r Record) State(key, claim string, now time.Time, most int) driver.State {
	s := driver.State{Key: key, Now: now, Kind: r.Kind, Limit: r.Limit, Token: r.Token, Waiting: len(r.Queue), Sealed: r.Sealed}
	if r.Kind == driver.KindElection {
		s.Term = r.Term
	}
	for _, h := range r.Holders {
		s.Holders = append(s.Holders, h.Holder)
		if h.Value != nil {
			s.Value = append([]byte{}, h.Value...)
		}
	}
	if r.Sealed > 0 {
		s.Value = append([]byte{}, r.Result...)
	}
	ahead := r.Queue[:min(len(r.Queue), most)]
	if s.Position = r.Position(claim); s.Position > 0 {
		ahead = r.Queue[max(0, s.Position-1-most) : s.Position-1]
	}
	for _, w := range ahead {
		s.WaitersAhead = append(s.WaitersAhead, w.Waiter)
	}
	return s
}

// Idle reports whether a Sweep may delete the record. Nobody may hold the key or wait for it, and the record must not
// have changed since the time old. The key must not be sealed, because a seal is permanent. It must not have counted
// terms, because the count would start over. Also, old must be later than the time in the last token; otherwise a new
// record could begin with a smaller token. That time is ahead of the clock if several grants came within a millisecond.
func (r Record) Idle(old time.Time) bool {
	return r.Sealed == 0 && r.Term == 0 && !r.InUse() && r.LastChange.Before(old) &&
		r.Token+driver.TokenStep <= old.UnixMilli()*driver.TokenStep
}

// without returns s without the elements for which drop is true. It returns a copy, or s itself if there is nothing
// to drop, and never changes s, because records share their slices.
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
