package mongo

import (
	"context"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A short release with driver.Release.Early is sent with w: 1 to a replica set. The reply has the release's position in
// the log (opTime), and the reply to hello has the position up to which a majority has the log
// (lastWrite.majorityOpTime). A router passes on neither position, and a standalone has no fail-over, so both get an
// ordinary write.

// unknownOpTime stands for the position of a release if the reply does not contain a position. Such a release never
// counts as committed.
var unknownOpTime = driver.OpTime{Term: -1}

// opTime returns the OpTime at a path in a reply, and whether there is one.
func opTime(reply bson.Raw, path ...string) (driver.OpTime, bool) {
	doc, _ := reply.Lookup(path...).DocumentOK()
	t, i, ok := doc.Lookup("ts").TimestampOK()
	term, isTerm := doc.Lookup("t").AsInt64OK()
	if !ok || !isTerm {
		return driver.OpTime{}, false
	}
	return driver.OpTime{Term: term, Time: uint64(t)<<32 | uint64(i)}, true
}

// isEarly reports whether a write waits only for the primary. That is so if early is set and the server is a replica set.
func (s *store) isEarly(early bool) bool {
	return early && !s.server.portable && s.server.topology == replicaSet
}

// writeEarly is like write, but waits only for the primary.
func (s *store) writeEarly(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	return s.writeWith(ctx, cmd, bson.D{e("w", 1)})
}

// updateEarly is like update, but waits only for the primary if isEarly says so. If it does, and the update changes
// something, applied is the update's position in the log.
func (s *store) updateEarly(ctx context.Context, early bool, statement bson.D) (matched, changed bool, applied driver.OpTime, err error) {
	if !s.isEarly(early) {
		matched, changed, err = s.update(ctx, statement)
		return matched, changed, driver.OpTime{}, err
	}
	raw, err := s.writeEarly(ctx, updating(s.collection, statement))
	if err != nil {
		return false, false, driver.OpTime{}, err
	}
	matched, changed, err = updated(raw)
	if err == nil && changed {
		applied = s.applied(raw)
	}
	return matched, changed, applied, err
}

// applied returns the position in the log that the reply to an early release has, and notes it.
func (s *store) applied(reply bson.Raw) driver.OpTime {
	at, ok := opTime(reply, "opTime")
	if !ok {
		return unknownOpTime
	}
	s.early.note(at)
	return at
}

// committed returns a position up to which a majority has the log, or zero. It asks the server only if the latest early
// release is not yet known to be committed, and returns zero if the server does not answer.
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

// earlyReleases tracks the latest early release, and how much of the log a majority has.
type earlyReleases struct {
	mu      sync.Mutex
	applied driver.OpTime // the latest early release
	known   driver.OpTime // the last known position up to which a majority has the log
}

func (r *earlyReleases) note(at driver.OpTime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if later(at, r.applied) {
		r.applied = at
	}
}

// committed returns the position up to which a majority has the log, and whether that includes the latest early
// release.
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

// later reports whether a comes later in the log than b.
func later(a, b driver.OpTime) bool {
	return a.Term > b.Term || a.Term == b.Term && a.Time > b.Time
}
