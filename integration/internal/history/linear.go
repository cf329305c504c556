package history

import (
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// Kinds of operations of the models.
const (
	opAcquire = iota
	opRelease // by its holder
	opDrop    // of what was lost, by the store, at any later time
	opWrite
)

// An input is the input of an operation of a model.
type input struct {
	kind   int
	hold   *rules.Hold
	token  int64
	after  int64  // of a grant: the greatest token that it must follow
	answer string // of a write: "", Fenced, or "?"
}

// A lock is the state of a lock: its holders, and the greatest tokens so far, of all
// and of those that do not share.
type lock struct {
	holds          []*rules.Hold // in the order of their grants
	last, lastTurn int64
}

// lockModel: grants fit, and each follows the one before in the order of tokens, so that a
// wrong turn of the search ends at once; only a holder can release, or be dropped.
var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(lock), in.(input)
		if i.kind != opAcquire {
			at := slices.Index(s.holds, i.hold)
			if at < 0 {
				return false, s
			}
			s.holds = slices.Delete(slices.Clone(s.holds), at, at+1)
			return true, s
		}
		sum := i.hold.Weight
		for _, o := range s.holds {
			sum += o.Weight
		}
		newest := s.last
		if i.hold.Shared {
			newest = s.lastTurn
		}
		if sum > i.hold.Limit || newest != i.after {
			return false, s
		}
		s.holds = append(slices.Clone(s.holds), i.hold)
		s.last = max(s.last, i.token)
		if !i.hold.Shared {
			s.lastTurn = i.token
		}
		return true, s
	},
	Equal: func(a, b any) bool {
		x, y := a.(lock), b.(lock)
		return x.last == y.last && x.lastTurn == y.lastTurn && slices.Equal(x.holds, y.holds)
	},
}

// fenceModel: a document takes writes whose tokens are not smaller than the greatest
// it has seen, and refuses others. A write without an answer may have been taken.
var fenceModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(0)} },
	Step: func(state, in, _ any) []any {
		seen, i := state.(int64), in.(input)
		switch {
		case i.answer == Fenced && i.token < seen:
			return []any{seen}
		case i.answer == Fenced:
			return nil
		case i.token >= seen && i.answer == "":
			return []any{i.token}
		case i.token >= seen:
			return []any{seen, i.token}
		case i.answer == "":
			return nil
		}
		return []any{seen}
	},
}).ToModel()

// patience is how long the search for an order may take for one key.
const patience = time.Minute

// linear: the calls on each key can be put in one order that the models allow.
func (c *checker) linear(h *History, holds map[string][]*rules.Hold) {
	end := int64(h.end()) + 1
	ops := make(map[string][]porcupine.Operation)
	add := func(key string, call, returned time.Duration, in input) {
		op := porcupine.Operation{Input: in, Call: int64(call), Return: int64(returned)}
		if returned == 0 {
			op.Return = end // it may happen at any time
		}
		ops[key] = append(ops[key], op)
	}
	search := func(model porcupine.Model, of string) {
		for _, key := range slices.Sorted(maps.Keys(ops)) {
			switch porcupine.CheckOperationsTimeout(model, ops[key], patience) {
			case porcupine.Illegal:
				c.fail("linear", key, h.end(), "no order of the %d operations is that of a %s", len(ops[key]), of)
			case porcupine.Unknown:
				c.fail("linear", key, h.end(), "no order of the %d operations as of a %s was found in %v", len(ops[key]), of, patience)
			}
		}
		clear(ops)
	}

	for key, all := range holds {
		// Without those whose grant is like one whose answer was lost.
		granted := slices.DeleteFunc(slices.Clone(all), func(o *rules.Hold) bool { return o.Token == 0 })
		for _, o := range granted {
			add(key, o.Requested, o.Granted, input{kind: opAcquire, hold: o, token: o.Token, after: after(o, granted)})
			if o.Freed() {
				add(key, o.Done, o.Released, input{kind: opRelease, hold: o})
			} else {
				add(key, o.Free(c.grace), 0, input{kind: opDrop, hold: o})
			}
		}
	}
	search(lockModel, "lock")
	for _, w := range h.writes() {
		answer := w.err
		if !w.applied() && !w.refused() {
			answer, w.returned = "?", 0
		}
		add(w.key, w.call, w.returned, input{kind: opWrite, token: w.token, answer: answer})
	}
	search(fenceModel, "fence")
}

// after is the greatest token that the grant of a hold must follow: of all lesser ones,
// or, if it shares, of those that do not.
func after(o *rules.Hold, granted []*rules.Hold) (token int64) {
	for _, p := range granted {
		if p.Token < o.Token && !(o.Shared && p.Shared) {
			token = max(token, p.Token)
		}
	}
	return token
}
