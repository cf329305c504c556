package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/bench/internal/peer"
	"github.com/leasehold-go/leasehold/dsync"
)

// jobs are what children do; start is closed when the parent says "go".
var jobs = map[string]func(j job, start <-chan struct{}) error{
	"hold":      hold,
	"hold etcd": holdEtcd,
	"turns":     turns,
	"writes":    writes,
	"wait":      wait,
}

// hold locks, says its session's id, and holds.
func hold(j job, _ <-chan struct{}) error {
	ctx := context.Background()
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	s, err := t.Session(ctx, dsync.Options{TTL: j.TTL})
	if err != nil {
		return err
	}
	if err := s.Mutex(j.Key).LockContext(ctx); err != nil {
		return err
	}
	fmt.Println("held", s.ID())
	select {}
}

// holdEtcd locks, says so, and says when it learnt of each renewal of its lease.
func holdEtcd(j job, _ <-chan struct{}) error {
	ctx := context.Background()
	client, err := (&peer.Etcd{Addr: j.Addr}).Client()
	if err != nil {
		return err
	}
	lease, err := client.Grant(ctx, int64(j.TTL/time.Second))
	if err != nil {
		return err
	}
	renewals, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return err
	}
	s, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID))
	if err != nil {
		return err
	}
	if err := concurrency.NewMutex(s, "/locks/"+j.Key).Lock(ctx); err != nil {
		return err
	}
	<-renewals
	fmt.Println("renewed", time.Now().UnixNano())
	fmt.Println("held")
	for range renewals {
		fmt.Println("renewed", time.Now().UnixNano())
	}
	return fmt.Errorf("the lease of %v is over", s.Lease())
}

// turns locks and unlocks a key as often as it can.
func turns(j job, start <-chan struct{}) error {
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	ctx := context.Background()
	p, err := mutexes(t).Open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := p.Locker(ctx, j.Key)
	if err != nil {
		return err
	}
	return often(j, start, measure.LockUnlock(l))
}

// writes does two raw writes as often as it can, each time to a document of its own.
func writes(j job, start <-chan struct{}) error {
	t, err := measure.Server(j.Addr, j.Database)
	if err != nil {
		return err
	}
	raw, err := measure.NewRaw(t, j.Key)
	if err != nil {
		return err
	}
	defer raw.Close()
	return often(j, start, measure.Twice(raw.Write))
}

// often warms up, says that it is ready, waits for start, and then says how often it
// did op in the job's time.
func often(j job, start <-chan struct{}, op measure.Op) error {
	ctx := context.Background()
	for range 5 {
		if _, err := op(ctx); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	<-start
	n := 0
	for end := time.Now().Add(j.For); time.Now().Before(end); n++ {
		if _, err := op(ctx); err != nil {
			return err
		}
	}
	fmt.Println("did", n)
	return nil
}
