// Package storecmd sends single commands to a store, for tests and benchmarks. It has a function for each part of a
// driver.Edit and each kind of driver.SessionQuery.
package storecmd

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Acquire sends an Acquire.
func Acquire(ctx context.Context, store driver.Store, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	done, err := store.Edit(ctx, driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: wait, Expired: expired, NotAfter: notAfter}})
	return done.State, done.Notices, err
}

// Release sends a Release of c with the options in l.
func Release(ctx context.Context, store driver.Store, c driver.Claim, l driver.Release) (left bool, notices []driver.Notice, err error) {
	l.Claim = c
	done, err := store.Edit(ctx, driver.Edit{Release: &l})
	return done.Found, done.Notices, err
}

// Extend sends an Extend.
func Extend(ctx context.Context, store driver.Store, c driver.Claim, seq int64) (driver.Holder, error) {
	done, err := store.Edit(ctx, driver.Edit{Extend: &driver.Extend{Claim: c, Seq: seq}})
	return done.Holder, err
}

// Publish sends a Publish.
func Publish(ctx context.Context, store driver.Store, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
	done, err := store.Edit(ctx, driver.Edit{Publish: &driver.Publish{Claim: c, Seq: seq, Value: value}})
	return done.Notices, err
}

// Resize sends a Resize.
func Resize(ctx context.Context, store driver.Store, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
	done, err := store.Edit(ctx, driver.Edit{Resize: &driver.Resize{Key: key, Kind: kind, From: from, Limit: limit}})
	return done.Notices, err
}

// Forget sends a Forget.
func Forget(ctx context.Context, store driver.Store, key string, token int64) (forgot bool, notices []driver.Notice, err error) {
	done, err := store.Edit(ctx, driver.Edit{Forget: &driver.Forget{Key: key, Token: token}})
	return done.Found, done.Notices, err
}

// Unregister expires a session as its owner.
func Unregister(ctx context.Context, store driver.Store, session string) error {
	_, err := store.Expire(ctx, session, true)
	return err
}

// Members reads the sessions with the given ids or, if none are given, those that are alive, up to 1,000.
func Members(ctx context.Context, store driver.Store, ids ...string) ([]driver.Member, time.Time, error) {
	return store.Sessions(ctx, driver.SessionQuery{IDs: ids})
}

// Liveness is like Members, but reads only whether the sessions are alive.
func Liveness(ctx context.Context, store driver.Store, ids ...string) ([]driver.Member, time.Time, error) {
	return store.Sessions(ctx, driver.SessionQuery{IDs: ids, Liveness: true})
}

// Observers reads up to n sessions that observe key, in the order of their ids. It reads only sessions whose ids are
// greater than the parameter after.
func Observers(ctx context.Context, store driver.Store, key, after string, n int) ([]driver.Member, error) {
	m, _, err := store.Sessions(ctx, driver.SessionQuery{Observing: key, After: after, Limit: n})
	return m, err
}

// Queue reads the whole queue of key.
func Queue(ctx context.Context, store driver.Store, key string) ([]driver.Waiter, error) {
	st, err := store.Load(ctx, key, driver.MaxQueue)
	return st.WaitersAhead, err
}
