package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/bench/internal/peer"
	"github.com/leasehold-go/leasehold/bench/internal/servers"
)

// A lab holds the servers that the report measures.
type lab struct {
	uris  [columns]string // connection strings of columns one and three
	given bool            // column one is the server at MONGODB_URI
	pids  [columns][]int  // the process IDs of the mongods that the report started
	addrs [columns]string // host:port of the other systems' servers

	here    [columns]bool
	about   [columns]string // name and version of a column's server, or why there is none
	stops   []func()
	targets atomic.Int64
}

// findLab uses the server at MONGODB_URI or, if that is not set, starts mongods. Then it starts the
// other servers. For each server that it cannot start, it records the reason.
func findLab(ctx context.Context) *lab {
	l := &lab{}
	if uri := os.Getenv("MONGODB_URI"); uri != "" {
		l.uris[one], l.given = uri, true
		l.found(one, "", nil)
		l.found(three, "", fmt.Errorf("%w: MONGODB_URI is given", servers.ErrNotHere))
	} else {
		for c, members := range map[column]int{one: 1, three: 3} {
			m, err := servers.StartMongod(ctx, members)
			if l.found(c, "", err) {
				l.uris[c] = m.URI()
				l.stops = append(l.stops, m.Stop)
				for _, member := range m.Members() {
					l.pids[c] = append(l.pids[c], member.PID())
				}
			}
		}
	}
	for _, c := range []column{one, three} {
		if l.here[c] {
			l.askVersion(ctx, c)
		}
	}
	l.found(mongoLock, "square/mongo-lock, "+l.head(one), l.tryMongoLock(ctx))
	l.pids[mongoLock] = l.pids[one]
	for c, start := range map[column]func(context.Context) (*servers.Server, error){
		etcd: servers.StartEtcd, postgres: servers.StartPostgres, redis: servers.StartRedis,
	} {
		if s, err := start(ctx); l.found(c, "", err) {
			l.about[c], l.addrs[c] = s.About, s.Addr
			l.stops = append(l.stops, s.Stop)
		}
	}
	return l
}

// found records that c's server is available or, if err is not nil, why it is not. It returns true if the server is
// available.
func (l *lab) found(c column, about string, err error) bool {
	l.here[c], l.about[c] = err == nil, about
	if err != nil {
		l.about[c] = strings.TrimPrefix(err.Error(), servers.ErrNotHere.Error()+": ")
		if !errors.Is(err, servers.ErrNotHere) {
			fmt.Fprintf(os.Stderr, "report: %v: %v\n", c, err)
		}
	}
	return err == nil
}

// askVersion records the version of c's server, or, if the server does not answer, that it is not
// available.
func (l *lab) askVersion(ctx context.Context, c column) {
	t, err := measure.Server(l.uris[c], "admin")
	if err != nil {
		l.found(c, "", err)
		return
	}
	defer t.DB.Client().Disconnect(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var info struct {
		Version string `bson:"version"`
	}
	err = t.DB.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	l.found(c, fmt.Sprintf("MongoDB %s, %s", info.Version, l.head(c)), err)
}

// tryMongoLock returns an error if mongo-lock does not work on column one's server. For example,
// FerretDB 2.7 does not report a duplicate key as MongoDB does, so mongo-lock cannot tell that a
// key is held.
func (l *lab) tryMongoLock(ctx context.Context) error {
	if !l.here[one] {
		return fmt.Errorf("%w: column one has no server", servers.ErrNotHere)
	}
	t, err := l.target(one)
	if err != nil {
		return err
	}
	defer t.Close(context.WithoutCancel(ctx))
	return measure.Excludes(ctx, l.mongoLock(t))
}

// mongoLock returns mongo-lock on column one's server, in t's database.
func (l *lab) mongoLock(t *measure.Target) *peer.MongoLock {
	return &peer.MongoLock{URI: l.uris[one], Database: t.DB.Name()}
}

// head returns the heading of column c.
func (l *lab) head(c column) string {
	if c == one && l.given {
		return "MONGODB_URI"
	}
	return c.String()
}

// target returns a new database on the server of column one or three.
func (l *lab) target(c column) (*measure.Target, error) {
	return measure.Server(l.uris[c], fmt.Sprintf("leasehold_report_%d_%d", os.Getpid(), l.targets.Add(1)))
}

// stop ends the servers that were started.
func (l *lab) stop() {
	for _, stop := range l.stops {
		stop()
	}
}
