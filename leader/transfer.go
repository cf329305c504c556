package leader

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Transfer resigns like [Election.Resign], and the write that releases the leadership elects the given
// candidate, ahead of all that have waited longer. The others keep their order behind it. Take the candidate
// from [Election.Candidates]; only its Session is used.
//
// First Transfer checks that the candidate is alive and campaigns. If not, the error is
// [ErrNotCandidate]; if this process does not lead, [ErrNotLeader]. After these errors, and that of a
// read, a leader still leads.
//
// Then the term ends, with the cause [ErrResigned], and Transfer waits like Resign until its work is done
// and the store has elected the candidate. If the candidate stops campaigning before that, or its
// session expires, the first one in the queue is elected instead, and the error is both ErrNotCandidate
// and ErrResigned. A nil error says only whom the store has elected: a candidate that has died is
// elected all the same until its session expires, and somebody else leads within one TTL; one that has
// just stopped campaigning is replaced by the first in the queue when the store has its release.
//
// If the term is lost before it is released, the error is [ErrLost], and the next leader comes from the queue as
// usual. A lost reply does no harm: the request is repeated, elects nobody else, and ends no other term. In one rare
// case the candidate may have been elected although the error is ErrLost: the reply was lost, and a late copy of this
// process's own request to lead has put it back into the queue.
//
// If ctx ends, Transfer returns its error, and the transfer goes on. If ctx is the term's own or made
// from it, as inside Run's function, Transfer returns nil without waiting once the term has ended.
func (e *Election) Transfer(ctx context.Context, to Candidate) error {
	t := e.present()
	if t.over() {
		return fmt.Errorf("leader: transfer of %q: %w", e.name, ErrNotLeader)
	}
	claim, err := e.candidate(ctx, to.Session)
	if err != nil {
		return fmt.Errorf("leader: transfer of %q to session %q: %w", e.name, to.Session, err)
	}
	err = t.resignBy(ctx, driver.Release{Successor: claim})
	if err == ErrNotLeader { // it has ended meanwhile, or another Transfer was faster
		return fmt.Errorf("leader: transfer of %q: %w", e.name, err)
	}
	if errors.Is(err, driver.ErrNotWaiting) {
		err = fmt.Errorf("%w any more, and this process has resigned: %w: %w", ErrNotCandidate, ErrResigned, err)
	}
	if err != nil {
		return fmt.Errorf("leader: transfer of %q to session %q: %w", e.name, to.Session, err)
	}
	return nil
}

// candidate returns the id of the claim with which the session waits to be elected. This is the
// latest of its claims in the queue. The first may be one that it has given up, if it campaigned
// again before the store had the release.
func (e *Election) candidate(ctx context.Context, session string) (claim string, err error) {
	alive, err := e.alive(ctx, []string{session})
	if err != nil {
		return "", err
	}
	if _, ok := alive[session]; !ok {
		return "", fmt.Errorf("%w: its session has expired", ErrNotCandidate)
	}
	st, err := e.s.Load(ctx, e.name)
	if err != nil {
		return "", err
	}
	queue, err := e.queue(ctx, st)
	if err != nil {
		return "", err
	}
	var latest uint64
	for _, w := range queue {
		if n := claimNumber(w); w.Session == session && n >= latest {
			claim, latest = w.Claim, n
		}
	}
	if claim == "" {
		return "", ErrNotCandidate
	}
	return claim, nil
}

// claimNumber returns the counter in the id of w's claim. It grows with each claim of the session.
// Claims can join the queue in another order: a delayed request joins behind later ones.
func claimNumber(w driver.Waiter) uint64 {
	_, counter, _ := strings.Cut(w.Claim, ".")
	n, _ := strconv.ParseUint(counter, 10, 64) // 0 if no session of this library made the claim
	return n
}
