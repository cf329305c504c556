package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
)

// crash measures how long after a killed process's last heartbeat another process gets its lock,
// divided by the TTL.
func (r *report) crash(ctx context.Context) ([]row, error) {
	ttl := r.effort.crashTTL
	rounds := map[column]func(context.Context, int) (time.Duration, error){
		one:   func(ctx context.Context, i int) (time.Duration, error) { return r.killed(ctx, one, i) },
		three: func(ctx context.Context, i int) (time.Duration, error) { return r.killed(ctx, three, i) },
		etcd:  r.killedEtcd,
	}
	var lates [columns]measure.Sample // the times from the end of a lease to the grant
	g, ctx := errgroup.WithContext(ctx)
	for c, f := range rounds {
		if !r.lab.here[c] {
			continue
		}
		g.Go(func() error {
			for i := range r.effort.crashes {
				late, err := f(ctx, i)
				if err == nil && late < -2*time.Millisecond { // the timestamps are in whole milliseconds
					err = fmt.Errorf("the lock was granted %v before the killed process's lease ended", -late)
				}
				if err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
				lates[c] = append(lates[c], late)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("Fail-over after SIGKILL, from the last heartbeat, %d times", r.effort.crashes)
	median, most := row{name: name + ": median", unit: fmt.Sprintf("the TTL, %v", ttl)}, row{name: name + ": longest", unit: fmt.Sprintf("the TTL, %v", ttl)}
	for c, late := range lates {
		if late != nil {
			median = median.put(column(c), fmt.Sprintf("%.3f", (ttl+late.Median()).Seconds()/ttl.Seconds()), "TTL + "+milliseconds(late.Median()))
			most = most.put(column(c), fmt.Sprintf("%.3f", (ttl+late.Max()).Seconds()/ttl.Seconds()), "TTL + "+milliseconds(late.Max()))
		}
	}
	return []row{median, most}, nil
}

// killed kills a process that holds a lock. It returns how long after the end of that process's
// lease another process gets the lock, by the server's clock.
func (r *report) killed(ctx context.Context, c column, round int) (late time.Duration, err error) {
	t, err := r.lab.target(c)
	if err != nil {
		return 0, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	s, err := t.Session(ctx, dsync.Options{TTL: r.effort.crashTTL})
	if err != nil {
		return 0, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	var h *dsync.Hold
	acquire := func(ctx context.Context) (err error) {
		h, err = s.Mutex("crash").Hold(ctx)
		return err
	}
	id, at, err := r.victim(ctx, job{Do: "hold", Addr: r.lab.uris[c], Database: t.DB.Name(), Key: "crash"}, acquire, nil)
	if err != nil {
		return 0, err
	}
	var hello struct {
		Now time.Time `bson:"localTime"`
	}
	if err := t.DB.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return 0, err
	}
	granted := hello.Now.Add(-time.Since(at))
	members, _, err := admin.New(s).Members(ctx, id)
	if err != nil {
		return 0, err
	}
	if len(members) != 1 {
		return 0, fmt.Errorf("%d sessions have the ID %s, want 1", len(members), id)
	}
	return granted.Sub(members[0].LastHeartbeat.Add(members[0].TTL)), h.Release(ctx)
}

// killedEtcd does on etcd what killed does on MongoDB. It uses this host's clock, and counts the
// lease from the time when the child received the last renewal.
func (r *report) killedEtcd(ctx context.Context, round int) (late time.Duration, err error) {
	p, err := r.lab.etcd.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	key := fmt.Sprintf("crash %d", round)
	l, err := p.Locker(ctx, key)
	if err != nil {
		return 0, err
	}
	var renewed time.Time
	_, at, err := r.victim(ctx, job{Do: "hold etcd", Addr: r.lab.etcd.Addr, Key: key}, l.Lock, func(line string) {
		if text, ok := strings.CutPrefix(line, "renewed "); ok {
			if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
				renewed = time.Unix(0, ns)
			}
		}
	})
	if err != nil {
		return 0, err
	}
	if renewed.IsZero() {
		return 0, errors.New("the child reported no renewal after it acquired the lock")
	}
	return at.Sub(renewed.Add(r.effort.crashTTL)), l.Unlock(ctx)
}

// victim starts a child that holds a lock, calls wait in this process to acquire the same lock, and
// kills the child at a random time. It returns the child's session ID and the time when wait
// returned, and calls said with each line that the child printed while it held the lock.
func (r *report) victim(ctx context.Context, j job, wait func(context.Context) error, said func(string)) (session string, at time.Time, err error) {
	ttl := r.effort.crashTTL
	j.TTL = ttl
	c, err := startChild(ctx, j)
	if err != nil {
		return "", time.Time{}, err
	}
	defer c.kill()
	if session, err = c.await(ctx, "held"); err != nil {
		return "", time.Time{}, err
	}
	locked := make(chan error, 1)
	go func() {
		err := wait(ctx)
		at = time.Now()
		locked <- err
	}()
	time.Sleep(ttl/2 + rand.N(ttl/3))
	for _, line := range c.kill() {
		if said != nil {
			said(line)
		}
	}
	err = <-locked
	return session, at, err
}
