package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
)

// streams is the server's CPU while sessions wait, each with a change stream, for keys
// that another one holds, and nothing happens but heartbeats; by that of the idle
// server.
func (r *report) streams(ctx context.Context) ([]row, error) {
	name := func(n int) string {
		return fmt.Sprintf("The server's CPU, sessions that wait with a change stream each, TTL 30 s: %d", n)
	}
	if !r.lab.here[one] || r.lab.pid == 0 {
		line := row{name: name(r.effort.streams[0])}
		if r.lab.here[one] {
			line = line.put(one, "not here", "it is not our process")
		}
		return []row{line}, nil
	}
	idle, err := r.serverCPU(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, n := range r.effort.streams {
		busy, err := r.waiting(ctx, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row{name: name(n), unit: "the idle server's"}.
			put(one, quotient(busy, idle), fmt.Sprintf("%.1f ms/s / %.1f ms/s", busy, idle)))
	}
	return rows, nil
}

// waiting is the server's CPU with n sessions that wait.
func (r *report) waiting(ctx context.Context, n int) (float64, error) {
	t, err := r.lab.target(one)
	if err != nil {
		return 0, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	holder, err := t.Session(ctx, dsync.Options{})
	if err != nil {
		return 0, err
	}
	defer holder.Close(context.WithoutCancel(ctx))
	waits, cancel := context.WithCancel(ctx)
	var open, wait errgroup.Group
	defer wait.Wait()
	defer cancel()
	open.SetLimit(8)
	for i := range n {
		if err := holder.Mutex(keyName(i)).LockContext(ctx); err != nil {
			return 0, err
		}
		open.Go(func() error {
			s, err := t.Session(ctx, dsync.Options{})
			if err != nil {
				return err
			}
			wait.Go(func() error {
				s.Mutex(keyName(i)).LockContext(waits)
				return s.Close(context.WithoutCancel(ctx))
			})
			return nil
		})
	}
	if err := open.Wait(); err != nil {
		return 0, err
	}
	for i := range n {
		for {
			state, err := holder.Load(ctx, keyName(i))
			if err != nil {
				return 0, err
			}
			if state.Waiting == 1 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	time.Sleep(2 * time.Second) // what follows the opening
	return r.serverCPU(ctx)
}

// serverCPU is what the process of one member uses, in milliseconds a second.
func (r *report) serverCPU(ctx context.Context) (float64, error) {
	before, err := cpuOf(r.lab.pid)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	select {
	case <-time.After(r.effort.streamsFor):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := cpuOf(r.lab.pid)
	return 1000 * (after - before).Seconds() / time.Since(begin).Seconds(), err
}

// cpuOf is what a process has used so far, user and system, to the hundredth of a
// second in which Linux tells it.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // from the third on
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(string(fields[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
