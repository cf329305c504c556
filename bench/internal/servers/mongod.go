package servers

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/mongod"
)

// StartMongod starts a replica set with the given number of members and the default journaling, and returns
// when all members are in sync.
func StartMongod(ctx context.Context, members int) (*mongod.Set, error) {
	path, err := program("mongod")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return mongod.Start(ctx, path, mongod.Spec{
		Members: members,
		Args:    []string{"--wiredTigerCacheSizeGB", "0.5", "--oplogSize", "512"},
	})
}
