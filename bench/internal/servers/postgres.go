package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// StartPostgres starts PostgreSQL with its default settings for durability, and the superuser bench. It prefers a
// version that a Debian package installed (the newest, if all have two digits) to the one on PATH.
func StartPostgres(ctx context.Context) (_ *Server, err error) {
	initdb, postgres, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	who, err := unprivileged("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNotHere, err)
	}
	free, err := spawn.FreePorts(1)
	if err != nil {
		return nil, err
	}
	dir, err := directory("postgres")
	if err != nil {
		return nil, err
	}
	if who != nil {
		if err := os.Chown(dir, int(who.uid), int(who.gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	init := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "--auth=trust", "-E", "UTF8", "--locale=C")
	init.Dir = dir
	who.prepare(init)
	if out, err := init.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	addr := "127.0.0.1:" + free[0]
	d, err := start(ctx, spec{dir: dir, user: who, end: os.Interrupt, args: []string{
		postgres, "-D", data, "-p", free[0], "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=300",
	}}, connects(addr))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &Server{addr, "PostgreSQL " + version(postgres), d}, nil
}

func postgresPrograms() (initdb, postgres string, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.Sort(found)
	if len(found) > 0 {
		postgres = found[len(found)-1]
	} else if postgres, err = program("postgres"); err != nil {
		return "", "", err
	}
	initdb = filepath.Join(filepath.Dir(postgres), "initdb")
	if _, err := os.Stat(initdb); err != nil {
		return "", "", fmt.Errorf("%w: %s is not installed", ErrNotHere, initdb)
	}
	return initdb, postgres, nil
}
