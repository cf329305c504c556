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

// jobs holds the jobs that a child can run, by name.
var jobs = map[string]func(job) error{
	"hold":      hold,
	"hold etcd": holdEtcd,
	"wait":      wait,
}

// hold locks the key, prints its session's ID, and keeps the lock.
func hold(j job) error {
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

// holdEtcd does on etcd what hold does on MongoDB. It also prints the time of each renewal of its
// lease.
func holdEtcd(j job) error {
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
	return fmt.Errorf("the lease %v is no longer renewed", s.Lease())
}
