package leader

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Transfer resigns like [Election.Resign], and the write that releases the leadership also elects the given
// candidate, even if others have waited longer. The others keep their order. Take the candidate from
// [Election.Candidates]; only its Session is used.
//
// First, Transfer checks that this process leads ([ErrNotLeader]) and that the candidate is alive and campaigns
// ([ErrNotCandidate]). If a check fails, or the store can't be read, the term goes on.
//
// Then the term ends with the cause [ErrResigned], and Transfer waits like Resign until the work is done
// and the store has elected the candidate. If the candidate stops campaigning before that, or its session
// expires, the first candidate in the queue is elected instead, and the error matches both
// ErrNotCandidate and ErrResigned. A nil error means only that the store has elected the candidate. If
// the candidate has crashed but its session has not expired, somebody else leads within one TTL. If the
// candidate has just stopped campaigning, the first in the queue leads when the store has the candidate's
// release.
//
// If the term is lost before it is released, the error is [ErrLost], and the next leader comes from the queue as usual.
// A lost reply does no harm: the repeated request elects nobody else and ends no other term. In rare cases the error is
// ErrLost whether the candidate was elected or not: the reply was lost, and the answer to the repeated request is that
// the candidate does not wait. A deposed primary may have answered that.
//
// If ctx ends, Transfer returns ctx's error, and the transfer goes on. If ctx is the term's context
// or made from it, as inside Run's function, Transfer ends the term and returns nil without waiting.
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
	if err == ErrNotLeader { // the term has ended in the meantime, or another Transfer was faster
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

// yieldLater makes t end if it is older than YieldAfter and a more preferred candidate campaigns.
func (e *Election) yieldLater(t *term) {
	if e.opt.YieldAfter == 0 {
		return
	}
	wait := time.AfterFunc(e.opt.YieldAfter, func() {
		e.s.Observe(t.ctx, e.name, func(st driver.State, err error) {
			if err == nil {
				e.yield(t, st)
			}
		}, func() {})
	})
	context.AfterFunc(t.ctx, func() { wait.Stop() })
}

// yield ends t if a candidate in the queue is alive and more preferred than this process. The store will elect the most
// preferred of them. Unlike Transfer, yield must not release the term: the work has not been told to stop.
func (e *Election) yield(t *term, st driver.State) {
	for _, w := range st.WaitersAhead {
		if t.over() || w.Tick >= e.want.Tick {
			return
		}
		claim, err := e.candidate(t.ctx, w.Session)
		if errors.Is(err, ErrNotCandidate) {
			continue
		}
		if err == nil && t.hold.ReleaseBy(driver.Release{Successor: claim}) {
			t.cancel(fmt.Errorf("%w: a more preferred candidate campaigns, session %s", ErrResigned, w.Session))
		}
		return
	}
}

// candidate returns the id of the session's latest claim in the queue. If the session gave up a
// claim and campaigned again before the store had the release, the earlier claim may still be in
// the queue.
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

// claimNumber returns the counter in the id of w's claim. The counter grows with each claim of the session. But the
// queue may have the claims in another order, because the claim of a delayed request joins behind later claims.
func claimNumber(w driver.Waiter) uint64 {
	_, counter, _ := strings.Cut(w.Claim, ".")
	n, _ := strconv.ParseUint(counter, 10, 64) // 0 if no session of this library made the claim
	return n
}
