package history

import (
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// The kinds of operations in the models.
const (
	opAcquire = iota
	opRelease // by its holder
	opDrop    // the store drops a lost hold, at any time from [rules.Hold.Free] on
	opWrite
)

// An input describes one operation in a model.
type input struct {
	kind   int
	hold   *rules.Hold
	token  int64
	after  int64  // for a grant: the greatest token that must be granted before it
	answer string // for a write: "", Fenced, or "?" if unknown
}

// lock is the state of lockModel: the holders, the greatest token so far, and the greatest token
// of a hold that is not shared.
type lock struct {
	holds          []*rules.Hold // in the order of their grants
	last, lastTurn int64
}

// lockModel is the model of a lock. A granted hold must fit beside the others and have the next token. Because of the
// rule about tokens, the search abandons wrong orders at once. Only a granted hold can be released or dropped.
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

// fenceModel is the model of a fence. A document applies a write unless it has seen a greater
// token. An unanswered write may have been applied.
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

// patience is the longest time that the search for an order of one key's calls may take.
const patience = time.Minute

// linear checks that the calls on each key can be put in an order that the models allow.
func (c *checker) linear(h *History, holds map[string][]*rules.Hold) {
	search := func(model porcupine.Model, of string, ops map[string][]porcupine.Operation) {
		for _, key := range slices.Sorted(maps.Keys(ops)) {
			switch porcupine.CheckOperationsTimeout(model, ops[key], patience) {
			case porcupine.Illegal:
				c.fail("linear", key, h.end(), "the %d operations have no order that a %s allows", len(ops[key]), of)
			case porcupine.Unknown:
				c.fail("linear", key, h.end(), "no order of the %d operations that a %s allows was found in %v", len(ops[key]), of, patience)
			}
		}
	}
	search(lockModel, "lock", h.lockOps(holds, c.grace))
	writes := make(map[string][]porcupine.Operation)
	for _, w := range h.writes() {
		answer := w.err
		if !w.applied() && !w.refused() {
			answer, w.returned = "?", 0
		}
		writes[w.key] = append(writes[w.key], h.op(w.call, w.returned, input{kind: opWrite, token: w.token, answer: answer}))
	}
	search(fenceModel, "fence", writes)
}

// lockOps returns the operations of lockModel on each key.
func (h *History) lockOps(holds map[string][]*rules.Hold, grace time.Duration) map[string][]porcupine.Operation {
	ops := make(map[string][]porcupine.Operation)
	for key, all := range holds {
		// Ignore grants without a token: they prove no more than a call whose answer was lost.
		granted := slices.DeleteFunc(slices.Clone(all), func(o *rules.Hold) bool { return o.Token == 0 })
		for _, o := range granted {
			end := h.op(o.Free(grace), 0, input{kind: opDrop, hold: o})
			if o.Freed() {
				end = h.op(o.Done, o.Released, input{kind: opRelease, hold: o})
			}
			ops[key] = append(ops[key], h.op(o.Requested, o.Granted, input{kind: opAcquire, hold: o, token: o.Token, after: after(o, granted)}), end)
		}
	}
	return ops
}

// op returns an operation. If returned is 0, the operation may take effect at any time after the call.
func (h *History) op(call, returned time.Duration, in input) porcupine.Operation {
	if returned == 0 {
		returned = h.end() + 1
	}
	return porcupine.Operation{Input: in, Call: int64(call), Return: int64(returned)}
}

// after(o, granted) returns the greatest token that must be granted before the hold o. If o is
// shared, only the tokens of holds that are not shared count.
func after(o *rules.Hold, granted []*rules.Hold) (token int64) {
	for _, p := range granted {
		if p.Token < o.Token && !(o.Shared && p.Shared) {
			token = max(token, p.Token)
		}
	}
	return token
}
