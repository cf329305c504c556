package mongo

import (
	"context"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A release with driver.Release.Early is sent with w: 1 to a replica set. Its reply says where in the log it is
// (opTime), and hello says how far a majority has the log (lastWrite.majorityOpTime). A router passes on neither,
// and elsewhere there is no fail-over, so there a release is like every other write.

// unknownOpTime is where a release is whose reply does not say. It is never committed.
var unknownOpTime = driver.OpTime{Term: -1}

// opTime returns the OpTime at that place of a reply, as MongoDB writes it, and whether there is one.
func opTime(reply bson.Raw, path ...string) (driver.OpTime, bool) {
	doc, _ := reply.Lookup(path...).DocumentOK()
	t, i, ok := doc.Lookup("ts").TimestampOK()
	term, isTerm := doc.Lookup("t").AsInt64OK()
	if !ok || !isTerm {
		return driver.OpTime{}, false
	}
	return driver.OpTime{Term: term, Time: uint64(t)<<32 | uint64(i)}, true
}

// updateEarly is update with the acknowledgement of the primary alone, if early, where that makes a difference.
// If it has changed something, applied says where.
func (s *store) updateEarly(ctx context.Context, early bool, statement bson.D) (matched, changed bool, applied driver.OpTime, err error) {
	if !early || s.server.portable || s.server.topology != replicaSet {
		matched, changed, err = s.update(ctx, statement)
		return matched, changed, driver.OpTime{}, err
	}
	raw, err := s.writeWith(ctx, updating(s.collection, statement), bson.D{e("w", 1)})
	if err != nil {
		return false, false, driver.OpTime{}, err
	}
	matched, changed, err = updated(raw)
	if err != nil || !changed {
		return matched, changed, driver.OpTime{}, err
	}
	applied, ok := opTime(raw, "opTime")
	if !ok {
		return matched, changed, unknownOpTime, nil
	}
	s.early.note(applied)
	return matched, changed, applied, nil
}

// committed returns how far a majority has the log, or further back; zero if nothing is known. It asks the server
// if something was released early since it asked last.
func (s *store) committed(ctx context.Context) driver.OpTime {
	known, ok := s.early.committed()
	if ok {
		return known
	}
	v, err := s.hello(ctx)
	if err != nil {
		return driver.OpTime{}
	}
	return s.early.learn(v.committed)
}

// earlyReleases is what is known of the log's end.
type earlyReleases struct {
	mu      sync.Mutex
	applied driver.OpTime // the latest early release
	known   driver.OpTime // a majority has the log up to there
}

func (r *earlyReleases) note(at driver.OpTime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if later(at, r.applied) {
		r.applied = at
	}
}

// committed returns how far a majority has the log, and whether that has the latest early release.
func (r *earlyReleases) committed() (driver.OpTime, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known, !later(r.applied, r.known)
}

func (r *earlyReleases) learn(at driver.OpTime) driver.OpTime {
	r.mu.Lock()
	defer r.mu.Unlock()
	if later(at, r.known) {
		r.known = at
	}
	return r.known
}

// later reports whether a is later in the log than b.
func later(a, b driver.OpTime) bool {
	return a.Term > b.Term || a.Term == b.Term && a.Time > b.Time
}
