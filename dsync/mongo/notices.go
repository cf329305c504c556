package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// noticesSize is that of the capped collection, in bytes: some ten thousand notices.
	noticesSize = 1 << 20

	noticesSuffix = ".notices"

	// noticesAge is how long one cursor is used: one that was opened on a member that
	// is cut off from the others, or deposed, goes on there without an error.
	noticesAge = time.Minute
)

// Error codes of the notices' collection.
const (
	codeNamespaceExists = 48
	codeBadValue        = 2 // "tailable cursor requested on non capped collection"
)

// errNoNotices: there is nothing to tail, so the server ended the cursor at once.
var errNoNotices = errors.New("the collection is missing or empty")

// notices is the name of the capped collection of notices: see Listen.
func (s *Store) notices() string { return s.collection + noticesSuffix }

// Listen implements [dsync.Store] with a tailable cursor on a small capped collection, the
// name of the other with ".notices" behind it, which is made when it is missing. Only
// inserts into that collection wake the cursor, and only Notify makes them: what
// listening costs does not depend on what is written elsewhere. It needs find, insert,
// createCollection and convertToCapped on that collection: the server asks for the last of
// who creates a capped one (4.4: db/auth/authorization_session_impl.cpp, checkAuthForCreate).
//
// The error is errors.ErrUnsupported with [Options.NoWatch] and [Options.ReadOnly], on
// servers that are not MongoDB, within the strict Stable API, where the collection is there
// and not capped, and, with a warning in the log, where a right is missing.
func (s *Store) Listen(ctx context.Context, session string, f func()) error {
	if s.noWatch || s.readOnly || s.server.portable {
		return fmt.Errorf("mongo: listen: %w", errors.ErrUnsupported)
	}
	ctx = bare{ctx}
	for first := true; ; first = false {
		cursor, err := s.openNotices(ctx, session)
		if errors.Is(err, errNoNotices) {
			// There is nothing to tail without a notice, if it is for nobody.
			if err = s.insertNotice(ctx, ""); err == nil {
				cursor, err = s.openNotices(ctx, session)
			}
		}
		if err != nil {
			return s.unheard(err)
		}
		if first {
			f()
		}
		if err := tail(ctx, cursor, f); err != nil {
			return err
		}
	}
}

// openNotices opens a cursor on the notices for the session.
func (s *Store) openNotices(ctx context.Context, session string) (*mongo.Cursor, error) {
	cmd, err := bson.Marshal(bson.D{
		e("find", s.notices()), e("filter", bson.D{e("to", session)}),
		e("tailable", true), e("awaitData", true),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	cursor, err := s.db.RunCommandCursor(ctx, bson.Raw(cmd))
	if err != nil {
		return nil, err
	}
	if cursor.ID() == 0 {
		return nil, errNoNotices
	}
	cursor.SetMaxAwaitTime(awaitLimit)
	return cursor, nil
}

// tail calls f for what the cursor returns until it is old, ctx ends or it breaks.
func tail(ctx context.Context, cursor *mongo.Cursor, f func()) error {
	defer closeCursor(ctx, cursor)
	for opened := time.Now(); time.Since(opened) < noticesAge; {
		more, err := next(ctx, cursor)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("mongo: listen: %w", err)
		case more && cursor.RemainingBatchLength() == 0:
			f()
		}
	}
	return nil
}

// insertNotice makes the collection if it is missing, since an insert would make one that
// is not capped, and inserts a notice for the session.
func (s *Store) insertNotice(ctx context.Context, session string) error {
	_, err := s.run(ctx, bson.D{e("create", s.notices()), e("capped", true), e("size", noticesSize)})
	if err == nil || hasCode(err, codeNamespaceExists) {
		_, err = s.run(ctx, bson.D{e("insert", s.notices()), e("documents", bson.A{bson.D{e("to", session)}})})
	}
	return err
}

// Notify implements [dsync.Store] with an insert into the collection of Listen.
func (s *Store) Notify(ctx context.Context, session string) error {
	switch {
	case s.readOnly:
		return fmt.Errorf("mongo: notify: %w", s.mayWrite("insert"))
	case s.noWatch || s.server.portable:
		return nil // nobody who shares the store can listen, or is meant to
	}
	if err := s.insertNotice(ctx, session); err != nil {
		return failure("notify", err)
	}
	return nil
}

// unheard turns the error with which no cursor could be opened into the store's.
func (s *Store) unheard(err error) error {
	if !hasCode(err, refusals...) && !hasCode(err, codeBadValue) {
		return fmt.Errorf("mongo: listen: %w", err)
	}
	if hasCode(err, codeUnauthorized) {
		s.log.Warn("leasehold: no right to listen for notices: a holder learns of Break and ForceLock with its next heartbeat; grant find, insert, createCollection and convertToCapped on the collection, or set NoWatch",
			slog.String("collection", s.notices()), slog.Any("error", err))
	}
	return fmt.Errorf("mongo: listen: %w: %w", errors.ErrUnsupported, err)
}
