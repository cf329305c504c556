package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

const (
	// awaitLimit is how long the server keeps a request for events that has none
	// to answer with: what an idle watch costs is one command in this time. Events
	// are not delayed by it.
	awaitLimit = 5 * time.Second

	// watchLimit is how long an answer may take beyond that before the connection
	// is taken for dead.
	watchLimit = 10 * time.Second
)

// Watch implements [dsync.Store] with one change stream on the collection. The
// server filters: only what concerns this session's claims, changes of the keys, and the
// end of the collection come through. While a session's claims hold a key that others
// wait for, and yield it when asked to, every change of the key comes through on
// servers before 5.0. What the driver can resume without a gap it resumes; any
// other error ends the watch.
//
// Without a change stream the error is errors.ErrUnsupported: where
// [Options.NoWatch] says so, on a standalone, on servers that have none, and,
// with a warning in the log, where the right is missing.
func (s *Store) Watch(ctx context.Context, session string, keys []string, f func(dsync.Event)) error {
	if s.noWatch {
		return fmt.Errorf("mongo: watch: switched off: %w", errors.ErrUnsupported)
	}
	ctx = bare{ctx}
	watched := make(map[string]bool, len(keys))
	for _, key := range keys {
		watched[key] = true
	}
	stream, err := s.openStream(ctx, session, watched)
	if err != nil {
		return s.unwatched(err)
	}
	defer closeCursor(ctx, stream)
	f(dsync.Event{Type: dsync.EventReady})

	for {
		more, err := next(ctx, stream)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("mongo: watch: %w", err)
		case !more:
			continue
		}
		events, err := decodeEvent(stream.Current, session, watched)
		if err != nil {
			return fmt.Errorf("mongo: watch: %w", err)
		}
		for _, event := range events {
			f(event)
		}
	}
}

func (s *Store) openStream(ctx context.Context, session string, watched map[string]bool) (*mongo.ChangeStream, error) {
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	// The database's own read settings may be such that no stream can have them.
	collection := s.db.Collection(s.collection, options.Collection().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	return collection.Watch(ctx, streamPipeline(session, watched), options.ChangeStream().SetMaxAwaitTime(awaitLimit))
}

// streamPipeline lets through what decodeEvent reads, and of that only the parts
// that it reads: a long line is a large record, which 4.4 logs whole. The event's
// _id is the place to resume from, and must stay.
func streamPipeline(session string, watched map[string]bool) mongo.Pipeline {
	// Claims' ids begin with their session's, and follow the start or a comma.
	mine := bson.Regex{Pattern: `(^|,)` + regexp.QuoteMeta(session) + `\.`}
	own, exists := e("documentKey._id", sessionID(session)), bson.D{e("$exists", true)}
	wanted := bson.A{
		bson.D{e("updateDescription.updatedFields.g", mine)},
		bson.D{e("updateDescription.updatedFields.r", mine)},
		bson.D{e("fullDocument.g", mine)},
		bson.D{e("fullDocument.r", mine)},
		bson.D{own, e("updateDescription.updatedFields.rev", exists)},
		bson.D{own, e("fullDocument.rev", exists)},
		bson.D{e("operationType", bson.D{e("$in", bson.A{"drop", "rename", "dropDatabase", "invalidate"})})},
	}
	if len(watched) > 0 {
		var ids []string
		for key := range watched {
			ids = append(ids, keyID(key))
		}
		slices.Sort(ids)
		wanted = append(wanted, bson.D{e("documentKey._id", bson.D{e("$in", ids)})})
	}
	return mongo.Pipeline{
		{e("$match", bson.D{e("$or", wanted)})},
		{e("$project", bson.D{
			e("operationType", 1), e("documentKey", 1),
			e("updateDescription.updatedFields.g", 1), e("fullDocument.g", 1),
			e("updateDescription.updatedFields.r", 1), e("fullDocument.r", 1),
			e("updateDescription.updatedFields.rev", 1), e("fullDocument.rev", 1),
		})},
	}
}

// pushed is a change stream, or the cursor of Listen.
type pushed interface {
	TryNext(context.Context) bool
	Err() error
	ID() int64
	Close(context.Context) error
}

// closeCursor says farewell: the server would drop the idle cursor by itself, after ten
// minutes.
func closeCursor(ctx context.Context, stream pushed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = stream.Close(ctx)
}

// next waits for one answer, with or without an event. It has a deadline of its
// own so that a connection that died without a word is noticed; the driver's
// Next would wait on it for ever, and would end the stream of a client that has a
// time-out whenever nothing happens for that long.
func next(ctx context.Context, stream pushed) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit+watchLimit)
	defer cancel()
	if stream.TryNext(ctx) {
		return true, nil
	}
	if err := stream.Err(); err != nil {
		return false, err
	}
	if stream.ID() == 0 {
		return false, errors.New("the server ended the cursor")
	}
	return false, nil
}

// unwatched turns the error with which a stream could not be opened into the
// store's.
func (s *Store) unwatched(err error) error {
	if !hasCode(err, refusals...) && !hasCode(err, unwatchable...) {
		return fmt.Errorf("mongo: watch: %w", err)
	}
	if hasCode(err, codeUnauthorized) {
		s.log.Warn("leasehold: no right to open a change stream: waiters poll; grant changeStream on the collection, or set NoWatch",
			slog.String("collection", s.collection), slog.Any("error", err))
	}
	return fmt.Errorf("mongo: watch: %w: %w", errors.ErrUnsupported, err)
}
