package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"
)

// maxListed is the maximum number of keys that a Listen names in the filter for the server. With more keys, Listen
// receives the changes of all observed keys and filters them itself.
const maxListed = 1_000

// Listen implements [driver.Store] with a tailable cursor on the capped collection of the session's address and, if
// there are keys, another on the collection for observers. Only inserts into those collections wake a cursor, so the
// cost of listening does not depend on other writes. Listen needs the privileges find, insert, createCollection and
// convertToCapped on those collections; the server requires convertToCapped for creating a capped collection (4.4:
// db/auth/authorization_session_impl.cpp, checkAuthForCreate). The first Listen for a session also lists which of the
// collections exist, which needs no further privilege. Listen marks the keys as observed in their records, and renews
// the marks every few minutes. One command marks up to a thousand keys.
//
// Listen replaces its cursors, because a cursor on a member that was deposed, or cut off from the others, stays open
// without an error. A cursor for the session lives five minutes, a cursor for keys one minute, and any cursor on a
// sharded cluster twenty seconds. The next cursor continues where the last one ended. On a replica set, Listen also
// follows the primary. With a [PrimaryWatch] ([Connect] sets one), Listen opens a cursor on a new primary as soon as
// the driver finds that primary, but at most one cursor a second. Without a PrimaryWatch, Listen asks for the primary
// after each Heartbeat of the store, and at least every 10 s. All listeners of the store share the answer. When the
// cursor on the new primary is open, Listen calls f with driver.NoticeReady, because notices may have been missed.
//
// The error is errors.ErrUnsupported with [Options].PollOnly or [Options].ReadOnly, and on servers other than MongoDB.
// It is also ErrUnsupported if the server refuses a command for good: because a privilege is missing, because a
// collection exists but is not capped, or because of the strict Stable API. Then one warning in the log says what to
// do. If the refused Listen was for a session, the claims of the store's sessions have no address until another Listen
// for a session is ready.
func (s *store) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	if !s.notifies() {
		return fmt.Errorf("mongo: listen: %w", errors.ErrUnsupported)
	}
	ctx = noValues{ctx}
	var tails []*tail
	if session != "" {
		tails = append(tails, s.tailSession(session))
	}
	if len(keys) > 0 {
		tails = append(tails, s.tailKeys(keys))
	}
	err := listen(ctx, tails, f, func() {
		if session != "" {
			s.listenRefused.Store(false)
			s.made.search.Do(func() { s.findNoticeCollections(ctx, tails[0].address) })
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t, ok := cannotListen(err)
	if !ok {
		return fmt.Errorf("mongo: listen: %w", err)
	}
	s.warn(t, err)
	if session != "" {
		s.listenRefused.Store(true)
	}
	return fmt.Errorf("mongo: listen: %w: %w", errors.ErrUnsupported, err)
}

// cannotListen reports whether err is an error that trying again cannot fix, and returns the kind of
// trouble.
func cannotListen(err error) (t trouble, ok bool) {
	t = troubleOf(err)
	return t, t == notCapped || refused(err)
}

// listen opens the tails, one after the other, and then follows all of them until one breaks or
// ctx ends.
func listen(ctx context.Context, tails []*tail, f func(driver.Notice), opened func()) error {
	defer func() {
		for _, t := range tails {
			t.close(ctx)
		}
	}()
	for _, t := range tails {
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	opened()
	f(driver.Notice{Type: driver.NoticeReady})
	switch len(tails) {
	case 0:
		<-ctx.Done()
		return ctx.Err()
	case 1:
		return tails[0].follow(ctx, f)
	}
	turn := make(chan struct{}, 1) // has a value while f runs, so that calls of f do not overlap
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tails {
		group.Go(func() error {
			return t.follow(ctx, func(n driver.Notice) {
				turn <- struct{}{}
				defer func() { <-turn }()
				f(n)
			})
		})
	}
	return group.Wait()
}

// tailSession returns the tail for a session's notices.
func (s *store) tailSession(session string) *tail {
	return &tail{s: s, address: int(s.ownAddress(session)), filter: bson.D{e("to", session)}}
}

// tailKeys returns the tail for notices of changes to keys.
func (s *store) tailKeys(keys []string) *tail {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	t := &tail{s: s, address: observersAddress, keys: keys}
	if len(keys) <= maxListed {
		t.filter = bson.D{e("k", bson.D{e("$in", keys)})}
	}
	return t
}
