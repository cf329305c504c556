package leader

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Term is one process's leadership, from its election to its end. The context
// that [Election.Campaign] returns carries it: see [TermFrom].
type Term struct {
	Election string
	Number   int64  // grows by one with each term of the election, of whichever process
	Token    int64  // the fencing token: greater than that of any earlier term
	Session  string // id of the leader's session
	Name     string // the identity that the leader shows: dsync.Options.Name
}

type termKey struct{}

// TermFrom returns the term of which ctx, or a context that it was made from, is
// the context.
func TermFrom(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// A term is a Term of this process.
type term struct {
	Term
	hold   *dsync.Hold
	ctx    context.Context // ends with the term
	cancel context.CancelCauseFunc
	run    bool // its work is a function of Run, which ends before it is released
}

// over reports whether the term has ended; it compares the clock.
func (t *term) over() bool { return t == nil || t.ctx.Err() != nil }
