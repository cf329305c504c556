package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// shortProgram measures cron's case, from exec to exit: a program that locks a key, runs true(1) and unlocks the key. The
// unit is a program that connects with the driver, makes two majority writes and exits. The two, etcdctl and flock(1)
// take turns.
func (r *report) shortProgram(ctx context.Context) ([]row, error) {
	unit := "a program with two raw writes"
	line := row{name: "`leasehold run KEY -- true`, and `etcdctl lock`", unit: unit}
	file := row{name: "`flock FILE true`", unit: unit, can: []column{one}}
	dir, err := os.MkdirTemp("", "leasehold-short-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const module = "github.com/leasehold-go/leasehold/"
	build := exec.CommandContext(ctx, "go", "build", "-o", dir, module+"cmd/leasehold", module+"bench/internal/twowrites")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in a release
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	ps, end, err := r.players(ctx, mutexes, one, three)
	if err != nil {
		return nil, err
	}
	defer end()
	var cs []contender
	for _, p := range ps {
		uri, db := r.lab.uris[p.column], p.target.DB.Name()
		c := contender{
			column: p.column,
			op:     program(filepath.Join(dir, "leasehold"), "run", "--uri", uri, "--db", db, "short", "--", "true"),
			unit:   program(filepath.Join(dir, "twowrites"), uri, db),
		}
		if flock, err := exec.LookPath("flock"); err == nil && p.column == one {
			c.early = program(flock, filepath.Join(dir, "file"), "true")
		}
		cs = append(cs, c)
	}
	if etcdctl, err := exec.LookPath("etcdctl"); err != nil {
		line = line.put(etcd, "not here", "not here: no etcdctl")
	} else if r.lab.here[etcd] {
		cs = append(cs, contender{column: etcd, op: program(etcdctl, "--endpoints", r.lab.addrs[etcd], "lock", "short", "true")})
	}
	u := units{}
	took, flock, err := interleave(ctx, r.effort.programs, u, cs...)
	if err != nil {
		return nil, err
	}
	line = line.compared(median, took, u)
	if len(flock) == 0 {
		file = file.put(one, "not here", "not here")
	}
	return []row{line, file.compared(median, flock, u)}, nil
}

// program is the Op that runs a program.
func program(path string, args ...string) measure.Op {
	return measure.Timed(func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, out)
		}
		return nil
	})
}
