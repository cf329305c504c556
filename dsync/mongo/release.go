package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Release implements [driver.Store]. It tries these commands in order, and sends the next one
// only if the one before was not applicable, in which case it has written nothing:
//
//   - with c.NoneWaiting, an update that frees the key if nobody waits and nobody observes
//     it;
//   - for a Mutex or an election, a short hand-over, which grants the key to the first
//     waiter, if that wants the key in the same way as c, or frees it;
//   - the pipeline, which handles everything.
//
// So a release takes one command if nobody waited and nobody does now, and two if somebody has
// come since. It takes one more for a Mutex or an election if the next claim is of another
// sort, a fixed lease or one with Yield, and for a Mutex with a published value.
//
// With Keep, Seal or a Successor, only the pipeline is sent, each in a version of its own.
//
// With Seal, if the hold's end has come so that c cannot seal, claims that the command grants
// get no notice.
func (s *Store) Release(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (found bool, notices []driver.Notice, err error) {
	if o.Keep <= 0 && !o.Seal && o.Successor == "" {
		found, notices, err = s.releaseQuick(ctx, c)
	} else {
		s.lastUsed.take(c.Key, c.ID)
		s.contended.add(c.Key)
	}
	if err == nil && !found {
		var r keyRecord
		if r, found, err = s.release(ctx, keyID(c.Key), c, o); found {
			err = r.succeeded(c, o)
			notices = s.sendable(r.released(c, o))
		}
	}
	if err != nil {
		return false, nil, failure("release", err)
	}
	return found, notices, nil
}

// releaseQuick tries the commands that are quicker than the pipeline.
func (s *Store) releaseQuick(ctx context.Context, c driver.Claim) (found bool, notices []driver.Notice, err error) {
	id, short := keyID(c.Key), simple(c) && c.Token > 0
	token, known := s.lastUsed.take(c.Key, c.ID)
	switch {
	case c.NoneWaiting && short:
		found, err = s.releaseAloneShort(ctx, id, c)
	case c.NoneWaiting:
		found, err = s.releaseAlone(ctx, id, c)
	}
	free := found
	if err == nil && !found && short {
		var h handOver
		if h, found, err = s.handOver(ctx, id, c, nil); found {
			notices = s.sendable(append(h.grant(c), h.Before.change(c.Key)...))
			free = h.First == nil && h.Before.Observed.IsZero()
		}
	}
	switch {
	case free && known:
		s.lastUsed.note(c.Key, "", token)
	case !free && plain(c):
		s.contended.add(c.Key)
	}
	return found, notices, err
}

// releaseAlone releases c with the pipeline if c holds the key, nobody waits and nobody
// observes the key. Nobody needs a notice then, so an update is enough, which costs the server
// less than a findAndModify.
func (s *Store) releaseAlone(ctx context.Context, id string, c driver.Claim) (found bool, err error) {
	missing := bson.D{e("$exists", false)}
	found, _, err = s.update(ctx, bson.D{
		e("q", bson.D{e("_id", id), e("h.a", c.ID), e("q.0", missing), e("o", missing)}),
		e("u", pipeline(s.shapes.release, bson.D{e("mine", c.ID)})),
	})
	return found, err
}

// release sends the pipeline. If both Seal and Keep are set, it seals: a sealed key cannot be
// held.
func (s *Store) release(ctx context.Context, id string, c driver.Claim, o driver.ReleaseOptions) (r keyRecord, found bool, err error) {
	m := modify{
		query:  bson.D{e("_id", id), e("$or", bson.A{bson.D{e("h.a", c.ID)}, bson.D{e("q.a", c.ID)}})},
		fields: s.shapes.released,
	}
	shape, scratch := s.shapes.release, bson.D{e("mine", c.ID)}
	switch {
	case o.Seal && len(o.Result) > maxValue:
		return keyRecord{}, false, fmt.Errorf("%w: the result has %d bytes; it may have at most %d", driver.ErrRefused, len(o.Result), maxValue)
	case o.Seal:
		shape, scratch = s.shapes.seal, append(scratch, e("result", bson.Binary{Data: o.Result}))
		m.fields, m.before = s.shapes.sealed, true // afterwards the queue is empty
	case o.Keep > 0:
		shape, scratch = s.shapes.keep, append(scratch, e("keep", millis(o.Keep)))
		m.fields = whomKept(c.ID)
	case o.Successor != "":
		shape, scratch = s.shapes.succeed, append(scratch, e("next", o.Successor))
		m.query = bson.D{e("_id", id), e("h.a", c.ID)}
		m.fields = whom(grantedOr(c.ID))
	}
	m.update = pipeline(shape, scratch)
	if found, err = s.modify(ctx, m, &r); found {
		s.clock.set(r.Now)
	}
	return r, found, err
}

// succeeded returns an error if c still holds because the successor that o names does not wait.
// r is the reply to the release.
func (r *keyRecord) succeeded(c driver.Claim, o driver.ReleaseOptions) error {
	if o.Successor == "" || o.Keep > 0 || o.Seal {
		return nil
	}
	for _, h := range r.Holders {
		if h.Claim == c.ID {
			return fmt.Errorf("%w: claim %s, the successor of %s", driver.ErrNotWaiting, o.Successor, c.ID)
		}
	}
	return nil
}
