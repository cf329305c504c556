package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The functions below find out from a reply which sessions to notify. Use them only on replies that a majority
// has confirmed.

// grants returns the notices for the claims that the command granted. The command's own claim gets none; its id is the
// argument mine. The granted claims are those held since exactly the command's time. So if two commands run within a
// millisecond, the second may repeat a notice of the first.
func (r *keyRecord) grants(key, mine string) (notices []driver.Notice) {
	for _, h := range r.Holders {
		if h.Since.Equal(r.Now) && h.Claim != mine && h.Address > 0 {
			notices = append(notices, driver.Notice{
				Type: driver.NoticeGrant, Session: h.Session, Key: key, Claim: h.Claim,
				Token: h.Token, Term: h.Term, Crowded: r.Waiting > 0, Address: h.Address,
			})
		}
	}
	return notices
}

// yields returns the notices for holders with Yield, at most a thousand.
func (r *keyRecord) yields(key string) (notices []driver.Notice) {
	for _, h := range r.Holders {
		if h.Yield && h.Address > 0 && len(notices) < maxGrants {
			notices = append(notices, driver.Notice{Type: driver.NoticeYield, Session: h.Session, Key: key, Claim: h.Claim, Address: h.Address})
		}
	}
	return notices
}

// wakes returns the notices that wake the waiters.
func wakes(key string, waiters []waiterRecord) (notices []driver.Notice) {
	for _, w := range waiters {
		if w.Address > 0 {
			notices = append(notices, driver.Notice{Type: driver.NoticeWake, Session: w.Session, Key: key, Claim: w.Claim, Address: w.Address})
		}
	}
	return notices
}

// change returns the notice for the observers of the key, if there are any.
func (r *keyRecord) change(key string) []driver.Notice {
	if !r.Observed.After(r.Now) {
		return nil
	}
	return []driver.Notice{{Type: driver.NoticeChange, Key: key, Address: observersAddress}}
}

// changed is like change, but returns nil if the record's time shows that the command did not change the
// record.
func (r *keyRecord) changed(key string) []driver.Notice {
	if !r.At.Equal(r.Now) {
		return nil
	}
	return r.change(key)
}

// acquired returns the notices for an Acquire of c.
func (r *keyRecord) acquired(c driver.Claim) []driver.Notice {
	notices := slices.Concat(r.early, r.grants(c.Key, c.ID), r.changed(c.Key))
	if r.Position == 1 {
		notices = append(notices, r.yields(c.Key)...)
	}
	return notices
}

// released returns the notices for a Release.
func (r *keyRecord) released(l driver.Release) []driver.Notice {
	c := l.Claim
	switch {
	case l.Seal > 0:
		return append(r.sealed(l), r.change(c.Key)...)
	case l.Keep > 0:
		return slices.Concat(r.grants(c.Key, c.ID), r.kept(l), r.changed(c.Key))
	}
	return append(r.grants(c.Key, c.ID), r.changed(c.Key)...)
}

// kept returns the notice for the first waiter, if l has set the end of the hold.
func (r *keyRecord) kept(l driver.Release) []driver.Notice {
	for _, h := range r.Holders {
		if h.Claim == l.Claim.ID && h.Until.Sub(r.Now).Milliseconds() == millis(l.Keep) {
			return wakes(l.Claim.Key, r.Ahead)
		}
	}
	return nil
}

// sealed returns notices for the waiters whose ticks are over, now that l has sealed the key. It also returns a notice
// for the first of the other waiters. If l did not seal the key, sealed returns nil. r is the record before the
// command. The first of the other waiters is woken even if the command granted it the key. The reason is that the
// grant's token is only in the record after the command, and the reply can't contain both records.
func (r *keyRecord) sealed(l driver.Release) []driver.Notice {
	seals := slices.ContainsFunc(r.Holders, func(h holderRecord) bool {
		return h.Claim == l.Claim.ID && !h.holder().Ended(r.Now)
	})
	if !seals || r.Done != nil && r.Done.Tick >= l.Seal {
		return nil
	}
	next := slices.IndexFunc(r.Ahead, func(w waiterRecord) bool { return w.Tick > l.Seal })
	var woken []waiterRecord
	for i, w := range r.Ahead {
		if i == next || w.Tick <= l.Seal {
			woken = append(woken, w)
		}
	}
	return wakes(l.Claim.Key, woken)
}

// sendable returns the notices if the store sends notices, otherwise nil.
func (s *store) sendable(notices []driver.Notice) []driver.Notice {
	if !s.notifies() {
		return nil
	}
	return notices
}

// A noticeRecord is a notice as it is stored. A notice for a key's observers has only the key.
type noticeRecord struct {
	ID      bson.ObjectID `bson:"_id,omitempty"` // made by the server
	To      string        `bson:"to,omitempty"`  // id of a session
	Type    string        `bson:"type,omitempty"`
	Key     string        `bson:"k"`
	Claim   string        `bson:"a,omitempty"`
	Token   int64         `bson:"t,omitempty"`
	Term    int64         `bson:"n,omitempty"`
	Crowded bool          `bson:"c,omitempty"`
}

var typeNames = map[driver.NoticeType]string{
	driver.NoticeGrant:  "grant",
	driver.NoticeWake:   "wake",
	driver.NoticeYield:  "yield",
	driver.NoticeRevoke: "revoke",
}

// recordOf returns the record for n. ok is false if no session can receive n.
func recordOf(n driver.Notice) (r noticeRecord, ok bool) {
	if n.Type == driver.NoticeChange {
		return noticeRecord{Key: n.Key}, n.Address == observersAddress
	}
	name, ok := typeNames[n.Type]
	r = noticeRecord{
		To: n.Session, Type: name, Key: n.Key, Claim: n.Claim,
		Token: n.Token, Term: n.Term, Crowded: n.Crowded,
	}
	return r, ok && n.Address > observersAddress && n.Address <= maxNoticeCollections
}

// notice returns the notice in the record. ok is false if the type is unknown: a later version of this library may
// send new types.
func (r *noticeRecord) notice(address int) (n driver.Notice, ok bool) {
	if address == observersAddress {
		return driver.Notice{Type: driver.NoticeChange, Key: r.Key, Address: address}, true
	}
	for t, name := range typeNames {
		if name == r.Type {
			return driver.Notice{
				Type: t, Session: r.To, Key: r.Key, Claim: r.Claim,
				Token: r.Token, Term: r.Term, Crowded: r.Crowded, Address: address,
			}, true
		}
	}
	return driver.Notice{}, false
}

// Notify implements [driver.Store] with one insert for each collection that it sends to. Before the first insert of
// this process into a collection, Notify creates the collection if it is missing. Without the right to create it,
// Notify inserts nothing there, logs a warning and returns dsync.ErrRefused.
func (s *store) Notify(ctx context.Context, notices []driver.Notice) error {
	switch {
	case s.readOnly:
		return fmt.Errorf("mongo: notify: %w", s.mayWrite("insert"))
	case !s.notifies():
		return nil
	}
	addresses := make(map[int]bson.A)
	for _, n := range notices {
		if r, ok := recordOf(n); ok {
			addresses[n.Address] = append(addresses[n.Address], r)
		}
	}
	var errs []error
	// The observers' address, 0, comes last, because waiters need their notices sooner.
	for _, address := range slices.Backward(slices.Sorted(maps.Keys(addresses))) {
		if err := s.insertNotices(ctx, address, addresses[address]); err != nil {
			errs = append(errs, failure("notify", err))
		}
	}
	return errors.Join(errs...)
}
