package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Edit implements [driver.Store].
//
// One Acquire grants at most 1,000 claims; if more fit, later commands on the key grant the rest. On servers other than
// MongoDB the first Acquire or Resize of a key sends three commands. The Acquire of a plain claim that may wait begins
// with a short command if the key is probably free. If the short command grants nothing, it writes nothing, and a
// second command follows. A repeated Acquire begins with a command that never adds the claim to the queue. If the claim
// is not in the record, a second command follows.
//
// A Release tries these commands in order. It sends the next command only if the previous one did not apply, and
// so wrote nothing:
//
//   - with Claim.NoneWaiting, an update that removes the claim if nobody waits for the key and nobody observes it;
//   - for a simple claim (1 of 1, without Lease or Yield, such as a Mutex's or an election's), a short hand-over,
//     which frees the key or, if the first waiter's claim is simple, too, grants it the key;
//   - the pipeline, which handles everything.
//
// So a Release usually sends one command. It sends two if somebody waits and the session does not know it. For a simple
// claim, it sends one more if the next claim is not simple, such as a lease or a claim with Yield.
//
// A Release with Keep of a simple claim with Claim.NoneWaiting first sends an update that sets the claim's end if nobody
// waits for the key and nobody observes it. Otherwise, a Release with Keep, Seal or Successor sends only the pipeline,
// in a version for that option. If a Release with Seal does not seal the key, the claims that it grants get no notice.
//
// If many calls send a short Acquire, or the update of a Release of a simple claim, at the same time, one update makes the
// edits of several calls. If some of them were not made, a read shows which were. This does not happen on a sharded
// cluster, or on servers other than MongoDB.
//
// If possible, a Release with an Acquire sends one short hand-over that also adds the new claim. Otherwise it sends the
// commands of the Release and then those of the Acquire.
//
// A key's record keeps the last 16 former limits of the key.
func (s *store) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if err := e.Check(); err != nil {
		return driver.Edited{}, fmt.Errorf("mongo: edit: %w", err)
	}
	switch {
	case e.Release != nil && e.Acquire != nil:
		return s.editReplace(ctx, *e.Release, *e.Acquire)
	case e.Acquire != nil:
		return s.editAcquire(ctx, *e.Acquire)
	case e.Release != nil:
		return s.editRelease(ctx, *e.Release)
	case e.Extend != nil:
		return s.editExtend(ctx, *e.Extend)
	case e.Publish != nil:
		return s.editPublish(ctx, *e.Publish)
	case e.Forget != nil:
		return s.editForget(ctx, *e.Forget)
	}
	return s.editResize(ctx, *e.Resize)
}
