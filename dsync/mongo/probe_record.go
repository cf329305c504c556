package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// probeVersion is the version of the probe. Raise it whenever you change what the probe sends or checks, so
// that servers that passed an earlier version are probed again. TestProbeVersion fails if you forget.
const probeVersion = 12

// probeID returns the _id of the record for this version of the probe and this version of the server. Each pair of
// versions has its own record. With a single record, processes of two releases, or behind two routers, would make
// each other probe again and again. There are few such pairs, so the records are never deleted; Sweep stops before
// them.
func (s *store) probeID() string {
	return fmt.Sprintf("%sprobe/%d/%d", sweepEnd, probeVersion, s.server.wireVersion)
}

// probed reports whether the server has passed the probe before. To find out, it sends an upsert, so Open fails if the
// user lacks the right to find, insert or update. It does not wait for a majority: the session's registration does so,
// and until then nothing depends on the record.
//
// Dropping the collection removes the record too, so a new collection is always probed: it may have a collation,
// which only the probe notices.
func (s *store) probed(ctx context.Context) (bool, error) {
	var r struct {
		Passed bool      `bson:"passed"`
		Now    time.Time `bson:"now"`
	}
	_, err := s.modify(ctx, modify{
		query:  bson.D{e("_id", s.probeID())},
		update: bson.A{set(e("at", now))},
		fields: bson.D{e("passed", 1), e("now", now)},
		upsert: true,
		early:  true,
	}, &r)
	if err != nil {
		return false, failure("probe: findAndModify", err)
	}
	s.clock.set(r.Now)
	return r.Passed, nil
}

// rememberProbe records that the server has passed the probe.
func (s *store) rememberProbe(ctx context.Context) error {
	_, _, err := s.update(ctx, bson.D{
		e("q", bson.D{e("_id", s.probeID())}),
		e("u", bson.A{set(e("passed", true))}),
	})
	if err != nil {
		return failure("probe: update", err)
	}
	return nil
}
