package mongo

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// editRelease performs a Release.
func (s *store) editRelease(ctx context.Context, l driver.Release) (done driver.Edited, err error) {
	c := l.Claim
	if l.Keep <= 0 && l.Seal <= 0 && l.Successor == "" {
		done, err = s.releaseQuick(ctx, c, l.Early)
	} else {
		s.lastUsed.take(c.Key, c.ID)
		s.contended.add(c.Key, unknown)
		if l.Keep > 0 && l.Seal <= 0 && c.NoneWaiting && simple(c) && c.Token > 0 { // many, when a session closes in a hurry
			done.Found, _, err = s.releaseAloneShort(ctx, keyID(c.Key), driver.Release{Claim: c, Keep: l.Keep})
			if errors.Is(err, errInDoubt) {
				err = nil // the pipeline follows: to keep the claim again changes nothing
			}
		}
	}
	if err == nil && !done.Found {
		var r keyRecord
		if r, done.Found, err = s.release(ctx, keyID(c.Key), l); done.Found {
			err = r.succeeded(l)
			done.Notices = s.sendable(r.released(l))
		}
	}
	if err != nil {
		return driver.Edited{}, failure("release", err)
	}
	return done, nil
}

// releaseQuick tries the commands that are faster than the pipeline.
func (s *store) releaseQuick(ctx context.Context, c driver.Claim, early bool) (done driver.Edited, err error) {
	id, short := keyID(c.Key), simple(c) && c.Token > 0
	token, known := s.lastUsed.take(c.Key, c.ID)
	doubted := s.doubted.has(c.Key)
	if doubted {
		s.doubted.remove(c.Key)
	}
	switch {
	case c.NoneWaiting && short && !doubted:
		done.Found, done.Applied, err = s.releaseAloneShort(ctx, id, driver.Release{Claim: c, Early: early})
	case c.NoneWaiting && !short:
		done.Found, done.Applied, err = s.releaseAlone(ctx, id, c, early)
	}
	free, waiting := done.Found, unknown
	if err == nil && !done.Found && short {
		var h handOver
		if h, done.Found, err = s.handOver(ctx, id, c, nil); done.Found {
			done.Notices = s.sendable(append(h.grant(c), h.Before.change(c.Key)...))
			free, waiting = h.First == nil && h.Before.Observed.IsZero(), h.left
		}
	}
	switch {
	case free && known:
		s.lastUsed.note(c.Key, "", token)
	case !free && plain(c):
		s.contended.add(c.Key, waiting)
	}
	if errors.Is(err, errInDoubt) {
		s.doubted.add(c.Key, unknown)
	}
	return done, err
}

// releaseAlone releases c with the pipeline if c holds the key, nobody waits and nobody observes the key. In that
// case nobody needs a notice, so an update is enough, and an update costs the server less than a findAndModify.
func (s *store) releaseAlone(ctx context.Context, id string, c driver.Claim, early bool) (found bool, applied driver.OpTime, err error) {
	missing := bson.D{e("$exists", false)}
	found, _, applied, err = s.updateEarly(ctx, early, bson.D{
		e("q", bson.D{e("_id", id), e("h.a", c.ID), e("q.0", missing), e("o", missing)}),
		e("u", pipeline(theShapes().release, bson.D{e("mine", c.ID)})),
	})
	return found, applied, err
}

// release sends the pipeline. If both Seal and Keep are set, it ignores Keep, because a claim whose tick is over cannot
// hold the key.
func (s *store) release(ctx context.Context, id string, l driver.Release) (r keyRecord, found bool, err error) {
	c := l.Claim
	m := modify{
		query:  bson.D{e("_id", id), e("$or", bson.A{bson.D{e("h.a", c.ID)}, bson.D{e("q.a", c.ID)}})},
		fields: theShapes().released,
	}
	shape, scratch := theShapes().release, bson.D{e("mine", c.ID)}
	switch {
	case l.Seal > 0:
		done := bson.D{e("k", l.Seal), e("b", bson.Binary{Data: l.Result})}
		shape, scratch = theShapes().seal, append(scratch, e("done", done))
		m.fields, m.before = theShapes().sealed, true // after the seal, the queue no longer has the claims to wake
	case l.Keep > 0:
		shape, scratch = theShapes().keep, append(scratch, e("keep", millis(l.Keep)))
		m.fields = whomKept(c.ID)
	case l.Successor != "":
		shape, scratch = theShapes().succeed, append(scratch, e("next", l.Successor))
		m.query = bson.D{e("_id", id), e("h.a", c.ID)}
		m.fields = whom(grantedOr(c.ID))
	}
	m.update = pipeline(shape, scratch)
	if found, err = s.modify(ctx, m, &r); found {
		s.clock.set(r.Now)
	}
	return r, found, err
}

// succeeded returns an error if the claim still holds the key because l.Successor does not wait. r is
// the reply to the release.
func (r *keyRecord) succeeded(l driver.Release) error {
	if l.Successor == "" || l.Keep > 0 || l.Seal > 0 {
		return nil
	}
	for _, h := range r.Holders {
		if h.Claim == l.Claim.ID {
			return fmt.Errorf("%w: claim %s, the successor of %s", driver.ErrNotWaiting, l.Successor, l.Claim.ID)
		}
	}
	return nil
}
