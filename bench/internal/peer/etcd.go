package peer

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// Etcd is etcd's own package concurrency, as a [measure.System].
type Etcd struct {
	Addr      string // host:port
	Elections bool   // Lock campaigns, Unlock resigns
}

var _ measure.System = (*Etcd)(nil)

// Open implements [measure.System].
func (e *Etcd) Open(context.Context) (measure.Process, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{e.Addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return &etcdProcess{client, e.Elections}, nil
}

type etcdProcess struct {
	client    *clientv3.Client
	elections bool
}

// Locker makes a session for each lock, because two locks of one session can hold a key at the same
// time.
func (p *etcdProcess) Locker(_ context.Context, key string) (measure.Locker, error) {
	s, err := concurrency.NewSession(p.client)
	if err != nil {
		return nil, err
	}
	if p.elections {
		return etcdElection{concurrency.NewElection(s, "/elections/"+key)}, nil
	}
	return concurrency.NewMutex(s, "/locks/"+key), nil
}

func (p *etcdProcess) Close() error { return p.client.Close() }

type etcdElection struct{ *concurrency.Election }

func (e etcdElection) Lock(ctx context.Context) error   { return e.Campaign(ctx, "") }
func (e etcdElection) Unlock(ctx context.Context) error { return e.Resign(ctx) }
