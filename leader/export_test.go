package leader

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Observers returns the sessions that observe e, as admin.Inspector does.
func Observers(ctx context.Context, e *Election) ([]driver.Member, error) {
	return e.s.Observers(ctx, e.name)
}
