package servers

import (
	"context"
	"fmt"
	"os"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// StartRedis starts Redis with its append-only file, which by default is synced every second: if
// the machine crashes, the locks of the last second can be lost.
func StartRedis(ctx context.Context) (*Server, error) {
	path, err := program("redis-server")
	if err != nil {
		return nil, err
	}
	free, err := spawn.FreePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := directory("redis")
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + free[0]
	d, err := start(ctx, spec{dir: dir, end: os.Kill, args: []string{
		path, "--bind", "127.0.0.1", "--port", free[0], "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
	}}, connects(addr))
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &Server{addr, "Redis " + version(path), d}, nil
}
