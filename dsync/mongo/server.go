package mongo

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A server is what is known of the other side.
type server struct {
	topology string // "replica set", "sharded cluster" or "standalone"

	// portable says that this is not known to be MongoDB: records are made before
	// they are changed, instead of both at once.
	portable bool

	// majorityReads says that reads can be asked to show only what no fail-over
	// can undo.
	majorityReads bool

	now   time.Time // its clock, when it was asked
	asked time.Time // when its answer came, by this host's clock
}

// clock is what its clock says, or said a moment ago: to judge an age by, roughly.
func (v server) clock() time.Time { return v.now.Add(time.Since(v.asked)) }

// hello asks the server what it is. That needs no privilege, and unlike
// buildInfo it is part of the Stable API.
func (s *Store) hello(ctx context.Context) (server, error) {
	raw, err := s.run(ctx, bson.D{e("hello", 1)})
	if err != nil {
		return server{}, err
	}
	var r struct {
		SetName         string    `bson:"setName"`
		Msg             string    `bson:"msg"`
		TopologyVersion bson.Raw  `bson:"topologyVersion"`
		LocalTime       time.Time `bson:"localTime"`
	}
	if err := bson.Unmarshal(raw, &r); err != nil {
		return server{}, fmt.Errorf("decode the reply: %w", err)
	}
	// MongoDB 4.4 and later tell a topologyVersion. One that does not, an old
	// mongos perhaps, is only treated with more care than it needs.
	v := server{topology: "standalone", portable: len(r.TopologyVersion) == 0, now: r.LocalTime, asked: time.Now()}
	switch {
	case r.Msg == "isdbgrid":
		v.topology = "sharded cluster"
	case r.SetName != "":
		v.topology = "replica set"
	}
	v.majorityReads = !v.portable && v.topology != "standalone"
	return v, nil
}

// report says in the log what was found.
func (s *Store) report() {
	kind, watch := "MongoDB", "change stream"
	if s.server.portable {
		kind, watch = "compatible with MongoDB", "change stream, if the server has any"
	}
	if s.server.topology == "standalone" {
		watch = "polling"
	}
	if s.noWatch {
		watch = "polling, as NoWatch is set"
	}
	s.log.Info("leasehold: store is ready",
		slog.String("server", kind), slog.String("topology", s.server.topology),
		slog.Bool("portable", s.server.portable), slog.String("waiting", watch),
		slog.String("database", s.db.Name()), slog.String("collection", s.collection))
}
