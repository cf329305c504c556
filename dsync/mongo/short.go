package mongo

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// Short commands do what the pipelines do with a record as it is most of the time,
// for a fraction of the server's time: one simple claim is granted, and nothing is to
// be cleaned. The conditions for that are in the commands: where they are not met
// these change nothing, and the pipeline must follow. So they are as safe as it is
// whenever they arrive.
//
// The token of what they grant is not computed from the record, but chosen here, on
// the condition that it is greater by a step than any there was; the time of what
// acquireShort grants is the latest that the server's clock has surely reached. So the
// reply need not have them, and an update costs the server less than a findAndModify.

// simple reports whether c has the key for itself, without an end, and without room
// for more hand-overs than any claim has.
func simple(c dsync.Claim) bool {
	return c.Weight == 1 && c.Limit == 1 && c.Lease == 0 && !c.Yield
}

// after returns a token for the grant after that of the key's last token: as great as
// the record's next would be at a time that the server has surely reached.
func after(last int64, reached time.Time) int64 {
	return max(last+tokenStep, reached.UnixMilli()*tokenStep)
}

// acquireShort grants c, which is no election's, with the token and since then, if the
// key was used before as what c wants it for, with tokens that leave room before this
// one, nobody holds it and nobody waits for it.
func (s *Store) acquireShort(ctx context.Context, id string, c dsync.Claim, token int64, since, notAfter time.Time) (granted bool, err error) {
	told := fmt.Sprintf("%s:%d,", c.ID, token)
	return s.sendShort(ctx, s.short.acquire, id, c.ID, token, told,
		c.Session, string(c.Kind), token-tokenStep, since, notAfter)
}

// releaseShort releases c, and grants the key to the first in line, if c alone holds
// it, no token of it is greater than c's, c has published nothing, but for an election,
// and who is first, if anybody, is simple as well.
func (s *Store) releaseShort(ctx context.Context, id string, c dsync.Claim) (found bool, err error) {
	t := s.short.release
	token := after(c.Token, s.clock.reached())
	told := fmt.Sprintf(":%d,", token)
	if c.Kind == dsync.KindElection {
		t, told = s.short.resign, fmt.Sprintf(":%d", token) // and the term
	}
	return s.sendShort(ctx, t, id, c.ID, token, told, c.Token)
}

// sendShort reports whether the command changed anything.
func (s *Store) sendShort(ctx context.Context, t *template, id, claim string, token int64, told string, more ...any) (changed bool, err error) {
	if err := s.mayWrite("update"); err != nil {
		return false, err
	}
	args := append([]any{id, claim, token, told, confirmWithin(ctx)}, more...)
	raw, err := s.send(ctx, t.fill(args...))
	if err != nil {
		return false, err
	}
	_, changed, err = updated(raw)
	return changed, err
}
