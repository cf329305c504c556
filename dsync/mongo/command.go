package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// confirmLimit is how long a write waits for its majority where ctx has no
// deadline to say it.
const confirmLimit = 10 * time.Second

// answerLimit is how long a command waits for its answer where ctx has no deadline
// to say it: the driver would wait for ever on a connection that died without a word.
// It is as long as the driver looks for a server by default.
const answerLimit = 30 * time.Second

// limited returns ctx with a deadline.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerLimit)
}

// run sends one command and returns its reply. It is always the plain command:
// FindOneAndUpdate and its like send a transaction number for the driver's
// retries, which costs the server a second write, and a retry is answered from a
// stored image without what "fields" computes.
//
// The document is encoded here, with the driver's defaults, since the caller's
// client may have a registry and options of its own (one of them makes 64-bit
// integers 32-bit). maxTimeMS is the driver's doing, from ctx's deadline.
func (s *Store) run(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	raw, err := bson.Marshal(cmd)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", cmd[0].Key, err)
	}
	return s.send(ctx, raw)
}

func (s *Store) send(ctx context.Context, cmd bson.Raw) (bson.Raw, error) {
	ctx, cancel := limited(bare{ctx})
	defer cancel()
	return s.db.RunCommand(ctx, cmd).Raw()
}

// write is run with majority acknowledgement. The database's own write concern
// does not apply to plain commands, and the server's default may be w:1.
func (s *Store) write(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	if err := s.mayWrite(cmd[0].Key); err != nil {
		return nil, err
	}
	return s.run(ctx, append(cmd, e("writeConcern", majority(confirmWithin(ctx)))))
}

// mayWrite is nil unless the store is only to read.
func (s *Store) mayWrite(command string) error {
	if s.readOnly {
		return fmt.Errorf("%w: %s would write, and the store was opened with ReadOnly", dsync.ErrRefused, command)
	}
	return nil
}

// majority is the write concern, within milliseconds.
func majority(within any) bson.D { return bson.D{e("w", "majority"), e("wtimeout", within)} }

// confirmWithin is for how many milliseconds a write waits for its majority.
func confirmWithin(ctx context.Context) int64 {
	limit := confirmLimit
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Until(end), time.Millisecond)
	}
	return limit.Milliseconds()
}

// A modify is one findAndModify of one record, which exists or not.
type modify struct {
	query  bson.D // {_id: …}; an upsert with nothing else lets the server settle most races by itself
	update bson.A
	fields bson.D
	upsert bool
}

// modify sends m and decodes the record as it is afterwards into v. found is
// false if there is none and m does not upsert.
//
// Of many upserts that race on a new _id, one or two get "duplicate key" from a
// server that did not settle it by itself (seen on 4.4): those are sent once
// more, at once. On servers that are not MongoDB such a race answers anything
// (FerretDB 2.7: FailedToParse), so there the record is made first if it is
// missing, and the command sent again: three commands, once per record.
//
// An upsert with further conditions is not sent again: its "duplicate key", and on the
// other servers errNoMatch, say that a record is there that does not meet them.
func (s *Store) modify(ctx context.Context, m modify, v any) (found bool, err error) {
	cmd := bson.D{
		e("findAndModify", s.collection), e("query", m.query), e("update", m.update),
		e("new", true), e("fields", m.fields), e("upsert", m.upsert && !s.server.portable),
	}
	raw, err := s.write(ctx, cmd)
	if err != nil && m.upsert && len(m.query) == 1 && hasCode(err, codeDuplicateKey) {
		raw, err = s.write(ctx, cmd)
	}
	if err != nil {
		return false, err
	}
	found, err = value(raw, v)
	if err != nil || found || !m.upsert {
		return found, err
	}
	if err := s.create(ctx, m.query); err != nil {
		return false, err
	}
	if raw, err = s.write(ctx, cmd); err != nil {
		return false, err
	}
	if found, err = value(raw, v); err == nil && !found {
		err = fmt.Errorf("%w: %v", errNoMatch, m.query[0].Value) // or it was swept at this very moment
	}
	return found, err
}

// errNoMatch: the record that an upsert is for was made, or was there, and does not match.
var errNoMatch = errors.New("the record does not match")

// create makes a record that is empty but for the time, or leaves the one that is
// there, whatever further conditions the query has. By the time Sweep knows what is being made from what a process left that died
// before its next command.
func (s *Store) create(ctx context.Context, query bson.D) error {
	record := bson.D{query[0], e("at", s.server.clock())}
	_, err := s.write(ctx, bson.D{e("insert", s.collection), e("documents", bson.A{record})})
	if err != nil && !hasCode(err, codeDuplicateKey) {
		return err
	}
	return nil
}

// value decodes the reply of a findAndModify.
func value(reply bson.Raw, v any) (found bool, err error) {
	r, err := reply.LookupErr("value")
	if err != nil {
		return false, fmt.Errorf("reply of findAndModify without a value: %w", err)
	}
	if r.Type == bson.TypeNull {
		return false, nil
	}
	if err := r.Unmarshal(v); err != nil {
		return false, fmt.Errorf("decode the record: %w", err)
	}
	return true, nil
}

// read is the command that reads through the pipeline.
func (s *Store) read(stages []bson.D, cursor bson.D, majority bool) bson.D {
	cmd := bson.D{e("aggregate", s.collection), e("pipeline", stages), e("cursor", cursor)}
	if majority && s.server.majorityReads {
		cmd = append(cmd, e("readConcern", bson.D{e("level", "majority")}))
	}
	return cmd
}

// aggregate runs a pipeline whose results fit into one reply, and decodes them
// into v, a pointer to a slice.
func (s *Store) aggregate(ctx context.Context, v any, majority bool, stages ...bson.D) error {
	raw, err := s.run(ctx, s.read(stages, bson.D{}, majority))
	if err != nil {
		return err
	}
	return batch(raw, v)
}

// batch decodes the first batch of a reply into v, a pointer to a slice.
func batch(reply bson.Raw, v any) error {
	first, err := reply.LookupErr("cursor", "firstBatch")
	if err != nil {
		return fmt.Errorf("reply of aggregate without a batch: %w", err)
	}
	if err := first.Unmarshal(v); err != nil {
		return fmt.Errorf("decode the batch: %w", err)
	}
	return nil
}
