package main

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// clients is how often processes lock and unlock keys of their own, all of them
// together, by how often as many write twice.
func (r *report) clients(ctx context.Context) ([]row, error) {
	var rows []row
	for _, n := range r.effort.clients {
		line := row{
			name: fmt.Sprintf("Keys of their own, client processes: %d; Lock and Unlock per second", n),
			unit: "two raw writes per second, of as many",
		}
		if r.lab.here[one] {
			ours, err := r.together(ctx, "turns", n)
			if err != nil {
				return rows, err
			}
			raw, err := r.together(ctx, "writes", n)
			if err != nil {
				return rows, err
			}
			line = line.put(one, quotient(ours, raw), fmt.Sprintf("%.0f/s / %.0f/s", ours, raw))
		}
		rows = append(rows, line)
	}
	return rows, nil
}

// together has n children do it at the same time, and returns how often a second they
// did.
func (r *report) together(ctx context.Context, do string, n int) (float64, error) {
	t, err := r.lab.target(one)
	if err != nil {
		return 0, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var children []*child
	defer func() {
		for _, c := range children {
			c.kill()
		}
	}()
	for i := range n {
		c, err := startChild(ctx, job{
			Do: do, Addr: r.lab.uris[one], Database: t.DB.Name(), Key: fmt.Sprintf("own %d", i), For: r.effort.clientsFor,
		})
		if err != nil {
			return 0, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if _, err := c.await(ctx, "ready"); err != nil {
			return 0, err
		}
	}
	for _, c := range children {
		if _, err := c.in.Write([]byte("go\n")); err != nil {
			return 0, err
		}
	}
	did := make([]int, n)
	var g errgroup.Group
	for i, c := range children {
		g.Go(func() error {
			text, err := c.await(ctx, "did")
			if err == nil {
				did[i], err = strconv.Atoi(text)
			}
			return err
		})
	}
	err = g.Wait()
	sum := 0
	for _, d := range did {
		sum += d
	}
	return float64(sum) / r.effort.clientsFor.Seconds(), err
}
