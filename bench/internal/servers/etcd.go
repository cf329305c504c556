package servers

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// StartEtcd starts one member of etcd with its default settings, which sync every write.
func StartEtcd(ctx context.Context) (*Server, error) {
	path, err := program("etcd")
	if err != nil {
		return nil, err
	}
	free, err := spawn.FreePorts(2)
	if err != nil {
		return nil, err
	}
	dir, err := directory("etcd")
	if err != nil {
		return nil, err
	}
	addr, peer := "127.0.0.1:"+free[0], "http://127.0.0.1:"+free[1]
	d, err := start(ctx, spec{dir: dir, end: os.Kill, args: []string{
		path, "--data-dir", dir, "--log-level", "error",
		"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
	}}, connects(addr))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return &Server{addr, "etcd " + version(path), d}, nil
}

// connects returns a function that checks whether addr accepts connections.
func connects(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
