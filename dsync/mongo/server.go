package mongo

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	replicaSet = "replica set"
	sharded    = "sharded cluster"
	standalone = "standalone"
)

// A server describes a server, from its reply to hello.
type server struct {
	topology string // one of the constants above

	// portable means that the server is not known to be MongoDB. An upsert of a missing record then takes three
	// commands: see modify.
	portable bool

	// wireVersion is the newest version of the wire protocol that the server speaks. Each release of MongoDB raises
	// it. On a sharded cluster it is the mongos's version; the mongos is upgraded last.
	wireVersion int

	// majorityReads means that reads can be restricted to data that no fail-over can undo.
	majorityReads bool

	// member identifies the member that answered, in its present term as primary. The value differs between members,
	// and changes when the member restarts or becomes the primary again.
	member string

	// committed is the position that a majority has reached in the replica set's log; zero if the server does not
	// report it.
	committed driver.OpTime

	now time.Time // the server's clock in the reply to hello
	at  time.Time // when that reply arrived, by this host's clock
}

// clock returns the server's approximate time, which is precise enough to judge ages.
func (v server) clock() time.Time { return v.now.Add(time.Since(v.at)) }

// hello asks the server what it is. It needs no privilege, and unlike buildInfo it is part of
// the Stable API.
func (s *store) hello(ctx context.Context) (server, error) {
	raw, err := s.run(ctx, bson.D{e("hello", 1)})
	if err != nil {
		return server{}, err
	}
	var r struct {
		mongoclient.Hello `bson:",inline"`

		LocalTime  time.Time     `bson:"localTime"`
		Me         string        `bson:"me"`
		ElectionID bson.ObjectID `bson:"electionId"`
		SetVersion int64         `bson:"setVersion"`
	}
	if err := bson.Unmarshal(raw, &r); err != nil {
		return server{}, fmt.Errorf("decode the reply: %w", err)
	}
	v := server{topology: standalone, portable: !r.MongoDB(), wireVersion: r.MaxWireVersion, now: r.LocalTime, at: time.Now()}
	v.committed, _ = opTime(raw, "lastWrite", "majorityOpTime")
	switch {
	case r.Sharded():
		v.topology = sharded
	case r.SetName != "":
		v.topology = replicaSet
	}
	if process, ok := r.TopologyVersion.Lookup("processId").ObjectIDOK(); ok {
		v.member = fmt.Sprint(r.Me, r.ElectionID, r.SetVersion, process)
	}
	v.majorityReads = !v.portable && v.topology != standalone
	return v, nil
}

// report logs what kind of server was found.
func (s *store) report() {
	kind, waiting := "MongoDB", "polling"
	if s.server.portable {
		kind = "compatible with MongoDB"
	}
	if s.notifies() {
		waiting = "notices"
	}
	s.log.Info("leasehold: store is ready",
		slog.String("server", kind), slog.String("topology", s.server.topology),
		slog.Bool("portable", s.server.portable), slog.String("waiting", waiting),
		slog.String("database", s.db.Name()), slog.String("collection", s.collection))
}

// A clock tracks the server's clock, using only times that the server itself reported. A session also tracks the
// server's clock, and takes the time from every State. A store's clock must not do that: the State of a short Acquire
// has this clock's own time, so each such State would set the clock back by a round trip.
type clock struct {
	mu      sync.Mutex
	now, at time.Time // the last time that the server reported, and when its reply arrived
}

// set records the server's time from a reply that has just arrived.
func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.at = now, time.Now()
}

// reached returns a time that the server's clock has reached by now, judging by the server's last report, or the zero
// time if there was no report. Heartbeats keep the returned time from falling far behind.
func (c *clock) reached() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.IsZero() {
		return time.Time{}
	}
	return c.now.Add(time.Since(c.at))
}
