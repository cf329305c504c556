package mongo

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// successor tries a Release with a Successor. It runs after short, which leaves the key "short" held by $short.6.
// First it names a successor that does not wait, so nothing must change. Then it names one that waits and must be
// granted the key.
func (p *prober) successor(ctx context.Context) error {
	id, c, next := p.id("short"), probeShort("$short.6"), probeShort("$short.8")
	if _, err := p.acquire(ctx, id, driver.Acquire{Claim: next, Wait: true, NotAfter: never}); err != nil {
		return failure("probe: acquire", err)
	}
	kept, _, err := p.release(ctx, id, driver.Release{Claim: c, Successor: "$none.1"})
	if err != nil {
		return failure("probe: release", err)
	}
	if len(kept.Holders) != 1 || kept.Holders[0].Claim != c.ID || kept.Waiting != 1 {
		return wrong("release", errors.New("want nothing released to a claim that does not wait"), kept)
	}
	r, found, err := p.release(ctx, id, driver.Release{Claim: c, Successor: next.ID})
	if err != nil {
		return failure("probe: release", err)
	}
	if !found || len(r.Holders) != 1 || r.Holders[0].Claim != next.ID || r.Waiting != 0 || dated(&r) != nil {
		return wrong("release", errors.New("want the key released to the claim that was named"), r)
	}
	return nil
}
