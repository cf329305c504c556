package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// confirmLimit is how long a write waits for its majority if ctx has no deadline.
const confirmLimit = 10 * time.Second

// answerLimit is how long a command waits for its reply if ctx has no deadline. Without this limit, the driver would
// wait forever on a connection that died silently. By default, the driver looks for a server for the same time.
const answerLimit = 30 * time.Second

// limited returns ctx with a deadline.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerLimit)
}

// run sends one command and returns its reply. It does not use FindOneAndUpdate and the like, because they add a
// transaction number for the driver's retries. For a command with such a number, the server makes a second write: it
// stores an image of the document. It answers a retry from this image, without the values that "fields" computes.
//
// The command is encoded here, with the driver's defaults, because the caller's client may have its own registry and
// options. These could, for example, turn 64-bit integers into 32-bit ones. The driver sets maxTimeMS from ctx's
// deadline.
func (s *store) run(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	raw, err := marshal(cmd)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", cmd[0].Key, err)
	}
	return s.send(ctx, raw)
}

func (s *store) send(ctx context.Context, cmd bson.Raw) (bson.Raw, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	ctx, done, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.db.RunCommand(noValues{ctx}, cmd).Raw()
}

// maxConnections is how many connections the commands of a store use at once, besides those of urgent commands and of
// listeners. A session sends more commands at once, because some of them go together (see bulkWriter). If all waited in
// the driver for a connection, a heartbeat would wait behind them.
const maxConnections = 32

// connection waits for one of maxConnections. It returns a context whose commands need not wait, and a function to call
// after them. If ctx's commands need not wait, neither does connection.
func (s *store) connection(ctx context.Context) (connected context.Context, done func(), err error) {
	if ctx.Value(connectionKey{}) != nil {
		return ctx, func() {}, nil
	}
	select {
	case s.connections <- struct{}{}:
		return urgent(ctx), func() { <-s.connections }, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%d earlier commands have no reply yet: %w", maxConnections, ctx.Err())
	}
}

type connectionKey struct{}

// urgent returns a context whose commands do not wait for a connection. It is for commands that decide whether a session
// lives or listens, because few of these are under way at a time.
func urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, true)
}

// write is like run, but waits for a majority. The database's write concern does not apply to plain commands, and
// the server's default may be w:1.
//
// On a standalone, w: "majority" does not wait for the journal, but j: true does. Without j: true, a killed server
// would lose the writes of its last tenth of a second, including grants. A replica set journals majority writes by
// default.
func (s *store) write(ctx context.Context, cmd bson.D) (bson.Raw, error) {
	ctx, done, err := s.connection(ctx) // before confirmWithin
	if err != nil {
		return nil, err
	}
	defer done()
	concern := majority(confirmWithin(ctx))
	if s.server.portable || s.server.topology != standalone || s.unjournaled.Load() {
		return s.writeWith(ctx, cmd, concern)
	}
	raw, err := s.writeWith(ctx, cmd, append(concern, e("j", true)))
	if hasCode(err, codeBadValue) && strings.Contains(err.Error(), "journal") { // the server has no journal
		if !s.unjournaled.Swap(true) {
			s.log.Warn("leasehold: the server keeps no journal, so after a crash of the server two processes may hold the same lock; use a replica set")
		}
		return s.writeWith(ctx, cmd, concern)
	}
	return raw, err
}

// writeWith is like run, but with the given write concern.
func (s *store) writeWith(ctx context.Context, cmd, concern bson.D) (bson.Raw, error) {
	if err := s.mayWrite(cmd[0].Key); err != nil {
		return nil, err
	}
	cmd = append(cmd, e("writeConcern", concern))
	raw, err := s.run(ctx, cmd)
	if s.server.portable && hasCode(err, codeFailedToParse) {
		// FerretDB 2.7 returns this for every command with $$NOW if the collection has been dropped.
		if _, bad := s.run(ctx, bson.D{e("create", s.collection)}); bad == nil || hasCode(bad, codeNamespaceExists) {
			return s.run(ctx, cmd)
		}
	}
	return raw, err
}

// mayWrite returns an error if the store is read-only.
func (s *store) mayWrite(command string) error {
	if s.readOnly {
		return fmt.Errorf("%w: %s would write, and the store was opened with ReadOnly", driver.ErrRefused, command)
	}
	return nil
}

// majority returns the write concern "majority", with a limit in milliseconds.
func majority(within any) bson.D { return bson.D{e("w", "majority"), e("wtimeout", within)} }

// confirmWithin returns how many milliseconds a write may wait for its majority. The limit is somewhat less than
// the time that ctx has left, so that the server can report that there is no majority. Otherwise the driver would
// close the connection first, and report only a time-out.
func confirmWithin(ctx context.Context) int64 {
	limit := confirmLimit
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Until(end)*7/8, time.Millisecond)
	}
	return limit.Milliseconds()
}

// The type modify describes a findAndModify command for one record, which may not exist yet.
type modify struct {
	query  bson.D // {_id: …}, perhaps with conditions; without them, the server itself resolves most races of upserts
	update bson.A
	fields any // the projection, a document; nil: the whole record
	upsert bool
	before bool // reply with the record as it was before the command
	early  bool // on a replica set, wait only for the primary
}

// modify sends m and decodes the record into v: as it is after the command, or with m.before as it was before the
// command. found is false if no record matches and m does not upsert.
//
// When many upserts of a new _id race, MongoDB may still refuse one or two as "duplicate key" (seen on 4.4). modify
// repeats such an upsert once, immediately. Other servers may return any error after such a race (FerretDB 2.7:
// FailedToParse), so modify sends them no upserts. If the record is missing on such a server, modify creates it and
// repeats the command: three commands instead of one.
//
// An upsert with further conditions is not repeated. If it fails with "duplicate key", the record exists but does not
// meet the conditions. On other servers, it fails with errNoMatch instead.
func (s *store) modify(ctx context.Context, m modify, v any) (found bool, err error) {
	cmd := bson.D{
		e("findAndModify", s.collection), e("query", m.query), e("update", m.update),
		e("new", !m.before),
	}
	if m.fields != nil {
		cmd = append(cmd, e("fields", m.fields))
	}
	cmd = append(cmd, e("upsert", m.upsert && !s.server.portable))
	write := s.write
	if s.isEarly(m.early) {
		write = s.writeEarly
	}
	raw, err := write(ctx, cmd)
	if err != nil && m.upsert && len(m.query) == 1 && hasCode(err, codeDuplicateKey) {
		raw, err = write(ctx, cmd)
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
	if raw, err = write(ctx, cmd); err != nil {
		return false, err
	}
	if found, err = value(raw, v); err == nil && !found {
		err = fmt.Errorf("%w: %v", errNoMatch, m.query[0].Value) // or the record has just been swept
	}
	return found, err
}

// errNoMatch means that an upsert found no record to change: the record exists but does not meet the upsert's
// conditions, or it has just been swept.
var errNoMatch = errors.New("the record does not match")

// create creates a record with only the time, unless there is a record with that _id. If the process dies before
// its next command, the time tells Sweep how old the record is.
func (s *store) create(ctx context.Context, query bson.D) error {
	record := bson.D{query[0], e("at", s.server.clock())}
	_, err := s.write(ctx, bson.D{e("insert", s.collection), e("documents", bson.A{record})})
	if err != nil && !hasCode(err, codeDuplicateKey) {
		return err
	}
	return nil
}

// value decodes the reply to a findAndModify.
func value(reply bson.Raw, v any) (found bool, err error) {
	r, err := reply.LookupErr("value")
	if err != nil {
		return false, fmt.Errorf("reply to findAndModify without a value: %w", err)
	}
	if r.Type == bson.TypeNull {
		return false, nil
	}
	if err := r.Unmarshal(v); err != nil {
		return false, fmt.Errorf("decode the record: %w", err)
	}
	return true, nil
}

// read returns an aggregate command with the given stages. It names its read concern, because the server's default may be
// another.
func (s *store) read(stages []bson.D, cursor bson.D, majority bool) bson.D {
	cmd, level := bson.D{e("aggregate", s.collection), e("pipeline", stages), e("cursor", cursor)}, "local"
	if majority {
		level = "majority"
	}
	if s.server.majorityReads {
		cmd = append(cmd, e("readConcern", bson.D{e("level", level)}))
	}
	return cmd
}

// aggregate runs a pipeline whose results fit into one reply, and decodes them into v, a
// pointer to a slice.
func (s *store) aggregate(ctx context.Context, v any, majority bool, stages ...bson.D) error {
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
		return fmt.Errorf("the reply has no cursor.firstBatch: %w", err)
	}
	if err := first.Unmarshal(v); err != nil {
		return fmt.Errorf("decode the batch: %w", err)
	}
	return nil
}

// noValues is the wrapped context without its values; it keeps the deadline and the cancellation. A driver session
// among the values would make a lock's command part of the caller's transaction (mongo-driver v2.10.0,
// Database.RunCommand: sessionFromContext). If that transaction were aborted, the command would be undone.
type noValues struct{ context.Context }

func (noValues) Value(any) any { return nil }

// AfterFunc saves goroutines: without it, package context would start one for each context derived from this one.
func (c noValues) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.Context, f)
}
