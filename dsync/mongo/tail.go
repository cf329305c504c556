package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// awaitLimit is how long the server waits for a notice before it sends an empty answer. It sends
	// notices at once.
	awaitLimit = 10 * time.Second

	// If an answer takes longer than awaitLimit + silenceLimit, the connection counts as dead.
	silenceLimit = 10 * time.Second

	// tailAge is how long one cursor is used. For observers it is tailAgeKeys, because their marks are renewed when a
	// cursor is opened. Through a mongos it is tailAgeSharded for all tails, because a mongos does not report that a
	// cursor's member was deposed or cut off.
	tailAge        = 5 * time.Minute
	tailAgeKeys    = time.Minute
	tailAgeSharded = 20 * time.Second

	// If the server ends a cursor, the next cursor is opened at once, unless the server ended an earlier one less than
	// tailPause ago. In that case the tail breaks, and its caller waits before it listens again. With a PrimaryWatch, a
	// cursor younger than tailPause is kept even if there is a new primary, because each change of the primary makes
	// waiters request again, or their session read their keys.
	tailPause = time.Second

	// wholeCollection is more notices than a collection can have.
	wholeCollection = 1_000_000
)

var (
	// errNothing means that the collection is missing or empty, so the server ended the cursor
	// at once.
	errNothing = errors.New("the collection is missing or empty")

	errNotCapped = errors.New("the collection is not capped")

	// errDeposed is the cause of a context that was cancelled because there is a new primary.
	errDeposed = errors.New("there is a new primary")
)

// A tail follows the notices in one collection with a tailable cursor. From time to time it
// replaces the cursor; the new one continues after the last notice seen.
type tail struct {
	s       *store
	address int
	filter  bson.D   // nil: all notices
	keys    []string // keys to mark as observed, sorted; notices for other keys are ignored

	cursor *mongo.Cursor
	opened time.Time
	member string          // the member on which the cursor was opened
	moved  <-chan struct{} // closed when the driver finds another primary; nil: no watch
	last   bson.ObjectID   // the last notice seen; zero: none
	fresh  []driver.Notice
	marked time.Time // when the keys were last marked; zero: never

	closing sync.WaitGroup // the goroutines that close former cursors
}

// open opens the first cursor, and skips the notices that exist already.
func (t *tail) open(ctx context.Context) error {
	if _, err := t.reopen(ctx); err != nil {
		return err
	}
	t.fresh = nil
	return nil
}

// follow calls f for all new notices, until ctx ends or the tail breaks. When notices may have been missed, it
// calls f with NoticeReady.
func (t *tail) follow(ctx context.Context, f func(driver.Notice)) error {
	var lost time.Time // when the server last ended a cursor early
	for {
		member := t.member
		err := t.read(ctx, f)
		missed := hasCode(err, codeCappedPositionLost, codeQueryPlanKilled, codeCursorNotFound)
		switch {
		case missed && (lost.IsZero() || time.Since(lost) > tailPause):
			lost = time.Now()
		case err != nil:
			return err
		}
		if hasCode(err, codeQueryPlanKilled) {
			t.s.warn(dropped, err)
		}
		former := t.cursor
		gap, err := t.reopen(ctx)
		if t.cursor != former {
			// Close the former cursor in the background, because its member may no longer answer.
			t.closing.Go(func() { closeCursor(ctx, former) })
		}
		if err != nil {
			return err
		}
		if missed || gap || t.member != member { // a fail-over can lose notices
			f(driver.Notice{Type: driver.NoticeReady}) // waiters learn of their grants by requests or readings, so they don't need t.fresh
		} else {
			for _, n := range t.fresh {
				f(n)
			}
		}
		t.fresh = nil
	}
}

// read calls f for the notices that the cursor returns. It returns when the cursor is too old
// or breaks, when there is a new primary, or when ctx ends.
func (t *tail) read(ctx context.Context, f func(driver.Notice)) error {
	age := tailAge
	switch {
	case t.s.server.topology == sharded:
		age = tailAgeSharded
	case len(t.keys) > 0:
		age = tailAgeKeys
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if t.awaitPrimary(ctx) == nil {
			cancel(errDeposed) // also ends a wait for the server's answer, which can take awaitLimit
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	for time.Since(t.opened) < age {
		more, err := t.next(ctx)
		switch {
		case context.Cause(ctx) == errDeposed && err != nil:
			return nil
		case err != nil:
			return err
		case more:
			if n, ok := t.seen(); ok {
				f(n)
			}
		}
	}
	return nil
}

// awaitPrimary returns nil when the driver knows that a member other than the cursor's is the primary. While the
// driver knows no primary, awaitPrimary keeps waiting, because the cursor could not be replaced. With a watch, the
// driver reports the change; without one, awaitPrimary asks. If ctx ends first, it returns ctx's error.
func (t *tail) awaitPrimary(ctx context.Context) error {
	if t.s.server.topology != replicaSet {
		<-ctx.Done()
		return ctx.Err()
	}
	timer := time.NewTimer(awaitLimit)
	defer timer.Stop()
	if t.moved != nil {
		select {
		case <-t.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Reset(time.Until(t.opened.Add(tailPause)))
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		select {
		case <-t.s.heartbeats.next():
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.deposed(ctx) {
			return nil
		}
		timer.Reset(awaitLimit)
	}
}

// next waits for one answer, with or without a notice. It sets a deadline, because on a connection that died
// silently the driver's Next would wait forever.
func (t *tail) next(parent context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(parent, awaitLimit+silenceLimit)
	defer cancel()
	switch {
	case t.cursor.TryNext(ctx):
		return true, nil
	case parent.Err() != nil:
		return false, parent.Err()
	case t.cursor.Err() != nil:
		return false, t.cursor.Err()
	case t.cursor.ID() == 0:
		return false, errors.New("the server ended the cursor")
	}
	return false, nil
}

// seen returns the notice at the cursor. ok is false if it is not for this tail.
func (t *tail) seen() (n driver.Notice, ok bool) {
	var r noticeRecord
	if err := bson.Unmarshal(t.cursor.Current, &r); err != nil {
		return driver.Notice{}, false // not written by this library
	}
	t.last = r.ID
	if n, ok = r.notice(t.address); ok && t.address == observersAddress {
		_, ok = slices.BinarySearch(t.keys, n.Key)
	}
	return n, ok
}

// deposed reports whether a member other than the cursor's is now the primary, as far as the driver knows. It
// returns false while the driver knows no primary. All tails of a store ask after each heartbeat, so they share
// one hello. If the tail that sent the hello ends, the others ask again later.
func (t *tail) deposed(ctx context.Context) bool {
	asked := t.s.asked.DoChan("primary", func() (any, error) { return t.primary(ctx) })
	select {
	case answer := <-asked:
		return answer.Err == nil && answer.Val != t.member
	case <-ctx.Done():
		return false
	}
}

// primary returns the primary of a replica set, or "" for other topologies.
func (t *tail) primary(ctx context.Context) (string, error) {
	if t.s.server.topology != replicaSet {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, silenceLimit)
	defer cancel()
	v, err := t.s.hello(urgent(ctx))
	return v.member, err
}

// reopen opens a cursor, and reads the notices that came after the last one seen. gap means that the collection no
// longer has the last notice seen, so later notices may be missing, too.
func (t *tail) reopen(ctx context.Context) (gap bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, silenceLimit)
	defer cancel()
	last := t.last
	// Do this before find. If the primary then changes between the two, the cursor is merely replaced once
	// more.
	if t.s.primary != nil {
		t.moved = t.s.primary.changed.next()
	}
	if t.member, err = t.primary(ctx); err != nil {
		return false, err
	}
	err = t.find(ctx)
	if errors.Is(err, errNothing) {
		gap = !t.opened.IsZero()
		if err = t.begin(ctx); err == nil {
			err = t.find(ctx)
		}
	}
	if err != nil {
		return false, err
	}
	t.opened = time.Now()
	found, err := t.first(ctx, last)
	if err == nil {
		err = t.mark(ctx)
	}
	return gap || !found, err
}

// find opens a cursor whose first batch has all existing notices.
func (t *tail) find(ctx context.Context) error {
	cursor, err := t.s.tail(ctx, noticeCollection(t.s.collection, t.address), t.filter)
	if err != nil {
		return err
	}
	cursor.SetMaxAwaitTime(awaitLimit)
	t.cursor = cursor
	return nil
}

// tail opens a tailable cursor.
func (s *store) tail(ctx context.Context, collection string, filter bson.D) (*mongo.Cursor, error) {
	cmd, err := marshal(bson.D{
		e("find", collection), e("filter", append(bson.D{}, filter...)),
		e("tailable", true), e("awaitData", true), e("batchSize", wholeCollection),
	})
	if err != nil {
		return nil, err
	}
	cursor, err := s.db.RunCommandCursor(ctx, cmd)
	switch {
	case hasCode(err, codeBadValue):
		return nil, fmt.Errorf("%w: %w", errNotCapped, err)
	case err != nil:
		return nil, err
	case cursor.ID() == 0:
		return nil, errNothing
	}
	return cursor, nil
}

// begin creates the collection if it is missing, and inserts a notice without a receiver, because an empty
// collection cannot be tailed.
func (t *tail) begin(ctx context.Context) error {
	if err := t.s.createNoticeCollection(ctx, t.address); err != nil {
		return err
	}
	return t.s.insertNotices(ctx, t.address, bson.A{bson.D{e("to", "")}})
}

// first reads the first batch, in the order of insertion, and keeps the notices after the notice with the _id last.
// found reports whether the batch contains that notice; it is true if last is zero.
func (t *tail) first(ctx context.Context, last bson.ObjectID) (found bool, err error) {
	t.fresh, t.last, found = nil, bson.ObjectID{}, last.IsZero()
	// The first batch has arrived, so next does not wait, even if the batch is empty.
	for begun := false; !begun || t.cursor.RemainingBatchLength() > 0; begun = true {
		more, err := t.next(ctx)
		if err != nil {
			return false, err
		}
		if !more {
			break
		}
		n, ok := t.seen()
		switch {
		case !last.IsZero() && t.last == last:
			t.fresh, found = nil, true
		case ok:
			t.fresh = append(t.fresh, n)
		}
	}
	return found, nil
}

// close closes the cursor, and waits until former cursors are closed.
func (t *tail) close(ctx context.Context) {
	if t.cursor != nil {
		closeCursor(ctx, t.cursor)
		t.cursor = nil
	}
	t.closing.Wait()
}

// closeCursor closes a cursor. It returns within a second. If it fails, the server closes the idle cursor after ten
// minutes.
func closeCursor(ctx context.Context, cursor *mongo.Cursor) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = cursor.Close(ctx)
}
