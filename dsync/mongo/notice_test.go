package mongo_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A command's reply determines its notices. Sessions that do not listen have no address and get no notices.
func TestNoticesOfReplies(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).UTC()
	before, after := now.Add(-time.Millisecond), now.Add(time.Millisecond)
	const mine = "s.1"
	holder := func(claim string, at time.Time, more ...bson.E) bson.D {
		return append(bson.D{e("a", claim), e("s", claim[:1]), e("w", 1), e("t", int64(2048)), e("at", at)}, more...)
	}
	there, yields := e("p", int64(5)), e("l", true)
	mutex := driver.Claim{Key: "k", ID: mine, Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1, Token: 1024}
	election, semaphore := mutex, mutex
	election.Kind = driver.KindElection
	semaphore.Kind, semaphore.Limit = driver.KindSemaphore, 3
	acquire := func(c driver.Claim) func(context.Context, driver.Store) ([]driver.Notice, error) {
		return func(ctx context.Context, s driver.Store) ([]driver.Notice, error) {
			_, notices, err := storecmd.Acquire(ctx, s, c, true, []string{"dead"}, now)
			return notices, err
		}
	}
	release := func(c driver.Claim, o driver.Release) func(context.Context, driver.Store) ([]driver.Notice, error) {
		return func(ctx context.Context, s driver.Store) ([]driver.Notice, error) {
			_, notices, err := storecmd.Release(ctx, s, c, o)
			return notices, err
		}
	}
	keep, seal := driver.Release{Keep: time.Second}, driver.Release{Seal: 1}
	publish := func(ctx context.Context, s driver.Store) ([]driver.Notice, error) {
		return storecmd.Publish(ctx, s, semaphore, 1, nil)
	}
	resize := func(ctx context.Context, s driver.Store) ([]driver.Notice, error) {
		return storecmd.Resize(ctx, s, "k", driver.KindSemaphore, 0, 3)
	}
	revoke := func(ctx context.Context, s driver.Store) ([]driver.Notice, error) {
		return s.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: "a.1"})
	}
	grant := func(claim string) driver.Notice {
		return driver.Notice{Type: driver.NoticeGrant, Session: claim[:1], Key: "k", Claim: claim, Token: 2048, Address: 5}
	}
	crowded := func(n driver.Notice) driver.Notice { n.Crowded = true; return n }
	term := func(n driver.Notice, term int64) driver.Notice { n.Term = term; return n }
	token := func(n driver.Notice, token int64) driver.Notice { n.Token = token; return n }
	yield := func(claim string) driver.Notice {
		return driver.Notice{Type: driver.NoticeYield, Session: claim[:1], Key: "k", Claim: claim, Address: 5}
	}
	woken := func(claim string) driver.Notice {
		return driver.Notice{Type: driver.NoticeWake, Session: claim[:1], Key: "k", Claim: claim, Address: 5}
	}
	at, observed := e("at", now), e("o", after)
	// base has the fields that all replies have. Each case adds or replaces fields.
	base := bson.D{e("now", now), e("y", "semaphore"), e("f", 2), e("c", 3), e("t", int64(2048))}
	// held returns a record as it was before a short hand-over.
	held := func(more ...bson.E) bson.D {
		return append(bson.D{e("f", 2), e("c", 1), e("t", int64(1024)), e("h", bson.A{bson.D{e("a", mine)}})}, more...)
	}
	first := func(more ...bson.E) bson.E {
		return e("first", append(bson.D{e("a", "a.1"), e("s", "a"), e("w", 1)}, more...))
	}
	for _, tc := range []struct {
		name  string
		do    func(context.Context, driver.Store) ([]driver.Notice, error)
		reply bson.D
		want  []driver.Notice
	}{
		{"acquire that grants mine", acquire(semaphore), bson.D{at, e("h", bson.A{holder(mine, now, there)})}, nil},
		{
			"acquire that grants others", acquire(semaphore),
			bson.D{at, e("h", bson.A{holder("a.1", before, there), holder("b.1", now, there), holder("c.1", now), holder(mine, now, there), holder("a.2", now, there)})},
			[]driver.Notice{grant("b.1"), grant("a.2")},
		},
		{
			"acquire of an election", acquire(election),
			bson.D{at, e("h", bson.A{holder("a.1", now, there, e("n", int64(7)))}), e("y", "election"), e("c", 1), e("position", 2), e("waiting", 2)},
			[]driver.Notice{term(crowded(grant("a.1")), 7)},
		},
		{
			"acquire of the first in the queue", acquire(semaphore),
			bson.D{e("h", bson.A{holder("a.1", before, there, yields), holder("b.1", before, there), holder("c.1", before, yields)}), e("position", 1), e("waiting", 1)},
			[]driver.Notice{yield("a.1")},
		},
		{
			"acquire of the second in the queue", acquire(semaphore),
			bson.D{e("h", bson.A{holder("a.1", before, there, yields)}), e("position", 2), e("waiting", 2)}, nil,
		},
		{
			"acquire behind a grant", acquire(semaphore),
			bson.D{at, observed, e("h", bson.A{holder("a.1", now, there, yields)}), e("position", 1), e("waiting", 1)},
			[]driver.Notice{crowded(grant("a.1")), change("k"), yield("a.1")},
		},
		{"acquire that changes nothing of an observed key", acquire(semaphore), bson.D{e("at", before), observed, e("position", 3), e("waiting", 3)}, nil},
		{"acquire that joins the queue of an observed key", acquire(semaphore), bson.D{at, observed, e("position", 3), e("waiting", 3)}, []driver.Notice{change("k")}},
		{"acquire of a key that was observed", acquire(semaphore), bson.D{at, e("o", now), e("position", 3), e("waiting", 3)}, nil},
		{
			"acquire that mismatches", acquire(mutex),
			bson.D{at, e("h", bson.A{holder("a.1", now, there)})}, nil,
		},

		{"hand-over", release(mutex, driver.Release{}), held(first(there), e("waiting", 1)), []driver.Notice{grant("a.1")}},
		{"hand-over with others behind", release(mutex, driver.Release{}), held(first(there), e("waiting", 2)), []driver.Notice{crowded(grant("a.1"))}},
		{"hand-over to a session that does not listen", release(mutex, driver.Release{}), held(first(), e("waiting", 2), observed), []driver.Notice{change("k")}},
		{"hand-over to nobody", release(mutex, driver.Release{}), held(), nil},
		{"hand-over to nobody of an observed key", release(mutex, driver.Release{}), held(observed), []driver.Notice{change("k")}},
		{"hand-over of the first term", release(election, driver.Release{}), held(first(there)), []driver.Notice{term(grant("a.1"), 1)}},
		{
			"hand-over of an election", release(election, driver.Release{}),
			held(first(there), e("n", int64(8)), observed),
			[]driver.Notice{term(grant("a.1"), 9), change("k")},
		},

		{
			"release", release(semaphore, driver.Release{}),
			bson.D{at, observed, e("waiting", 4), e("h", bson.A{holder("a.1", now, there), holder("b.1", now)})},
			[]driver.Notice{crowded(grant("a.1")), change("k")},
		},
		{
			"keep", release(semaphore, keep),
			bson.D{at, e("h", bson.A{holder(mine, before, there, e("e", now.Add(time.Second)))}), e("ahead", bson.A{holder("a.1", before, there)})},
			[]driver.Notice{woken("a.1")},
		},
		{
			"keep of what ends earlier", release(semaphore, keep),
			bson.D{at, e("h", bson.A{holder(mine, before, there, e("e", now.Add(time.Second-time.Millisecond)))}), e("ahead", bson.A{holder("a.1", before, there)})},
			nil,
		},
		{
			"keep of one that was in the queue", release(semaphore, keep),
			bson.D{at, observed, e("h", bson.A{holder("b.1", now, there)}), e("ahead", bson.A{holder("a.1", before, there)})},
			[]driver.Notice{grant("b.1"), change("k")},
		},
		{
			"keep in front of a session that does not listen", release(semaphore, keep),
			bson.D{at, e("h", bson.A{holder(mine, before, there, e("e", now.Add(time.Second)))}), e("ahead", bson.A{holder("a.1", before)})},
			nil,
		},
		{
			"release to a successor", release(election, driver.Release{Successor: "b.1"}),
			bson.D{at, observed, e("waiting", 1), e("h", bson.A{holder("b.1", now, there, e("n", int64(7)))})},
			[]driver.Notice{term(crowded(grant("b.1")), 7), change("k")},
		},
		{
			"keep in front of a successor", release(semaphore, driver.Release{Keep: time.Second, Successor: "b.1"}),
			bson.D{at, e("h", bson.A{holder(mine, before, there, e("e", now.Add(time.Second)))}), e("ahead", bson.A{holder("a.1", before, there)})},
			[]driver.Notice{woken("a.1")},
		},
		{
			"seal", release(semaphore, seal),
			bson.D{observed, e("h", bson.A{holder(mine, before)}), e("ahead", bson.A{holder("a.1", before, there), holder("b.1", before), holder("c.1", before, there)})},
			[]driver.Notice{woken("a.1"), woken("c.1"), change("k")},
		},
		{
			"seal of one that holds until later", release(semaphore, seal),
			bson.D{e("h", bson.A{holder(mine, before, e("e", after))}), e("ahead", bson.A{holder("a.1", before, there)})},
			[]driver.Notice{woken("a.1")},
		},
		{
			"seal up to a tick", release(semaphore, driver.Release{Seal: 5}),
			bson.D{e("h", bson.A{holder(mine, before)}), e("done", bson.D{e("k", int64(4))}), e("ahead", bson.A{
				holder("a.1", before, there, e("k", int64(5))), holder("b.1", before, there, e("k", int64(6))),
				holder("c.1", before, there, e("k", int64(7))), holder("a.2", before, there, e("k", int64(3))),
			})},
			[]driver.Notice{woken("a.1"), woken("b.1"), woken("a.2")},
		},
		{
			"seal of one whose end has come", release(semaphore, seal),
			bson.D{e("h", bson.A{holder(mine, before, e("e", now))}), e("ahead", bson.A{holder("a.1", before, there)})}, nil,
		},
		{
			"seal of one in the queue", release(semaphore, seal),
			bson.D{e("h", bson.A{holder("b.1", before)}), e("ahead", bson.A{holder("a.1", before, there)})}, nil,
		},
		{
			"seal of what is sealed", release(semaphore, seal),
			bson.D{e("h", bson.A{holder(mine, before)}), e("done", bson.D{e("k", int64(1))}), e("ahead", bson.A{holder("a.1", before, there)})}, nil,
		},

		{"publish", publish, bson.D{e("h", bson.A{holder(mine, before)})}, nil},
		{"publish of an observed key", publish, bson.D{observed, e("h", bson.A{holder(mine, before)})}, []driver.Notice{change("k")}},
		{"publish of a key that was observed", publish, bson.D{e("o", now), e("h", bson.A{holder(mine, before)})}, nil},
		{"resize", resize, bson.D{at, observed, e("h", bson.A{holder("a.1", now, there)})}, []driver.Notice{grant("a.1"), change("k")}},
		{"resize that changes nothing", resize, bson.D{e("at", before), observed}, nil},
		{"revoke", revoke, bson.D{e("p", int64(5))}, []driver.Notice{{Type: driver.NoticeRevoke, Session: "a", Key: "k", Claim: "a.1", Address: 5}}},
		{"revoke of a session that does not listen", revoke, bson.D{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, off := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					reply := slices.Clone(tc.reply)
					for _, f := range base {
						if !slices.ContainsFunc(reply, func(r bson.E) bool { return r.Key == f.Key }) {
							reply = append(reply, f)
						}
					}
					s := newFake(t).store(&dsyncmongo.Options{PollOnly: off}, func(call) bson.D { return ok(e("value", reply)) })
					got, err := tc.do(t.Context(), s)
					if err != nil && tc.name != "acquire that mismatches" {
						t.Fatal(err)
					}
					want := tc.want
					if off {
						want = nil
					}
					for i := range want { // the token of a short hand-over is chosen by the sender
						if len(got) == len(want) && shortGrant(tc.reply) && got[i].Token >= 2048 {
							got[i] = token(got[i], want[i].Token)
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("PollOnly %t: got %+v, want %+v", off, got, want)
					}
				})
			}
		})
	}
}

// shortGrant reports whether this is the reply to a short hand-over that granted the key to a waiter.
func shortGrant(reply bson.D) bool {
	return slices.ContainsFunc(reply, func(f bson.E) bool { return f.Key == "first" })
}

// A short hand-over's notice has the token that the command carried. This token is not behind the server's clock.
func TestNoticeOfAHandOverHasItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		if err := q.acquire(mutexClaim(1)); err != nil { // tells the store the server's time
			t.Fatal(err)
		}
		q.sent()
		time.Sleep(time.Second)
		q.waiting, q.first = 1, bson.D{e("a", "o.1"), e("s", "o"), e("w", 1), e("p", int64(3))}
		q.instead["short release"] = ok(e("n", 1), e("nModified", 0))
		got := q.release(mutexClaim(1))
		calls := q.f.took()
		sent := calls[len(calls)-1].cmd.Lookup("update", "0", "$replaceWith", "$mergeObjects", "1", "$let", "in", "$cond", "1", "$cond", "1", "t").Int64()
		want := []driver.Notice{{Type: driver.NoticeGrant, Session: "o", Key: "k", Claim: "o.1", Token: sent, Address: 3}}
		if !slices.Equal(got, want) || sent != time.Now().UnixMilli()*1024 {
			t.Errorf("got %+v, want %+v, with token %d", got, want, time.Now().UnixMilli()*1024)
		}
	})
}

// An Edit may send separate commands for its Release and its Acquire. If the Acquire then fails, the Edit still
// returns the Release's notices, because no later command would return them.
func TestNoticesOfAReplacementThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		acquires := 0
		s := f.store(nil, func(c call) bson.D {
			if kindOf(c) == "acquire" {
				acquires++
				return lost
			}
			now := time.Now()
			return ok(e("value", bson.D{e("now", now), e("at", now), e("h", bson.A{
				bson.D{e("a", "b.1"), e("s", "b"), e("w", 3), e("t", int64(2048)), e("at", now), e("p", int64(5))},
			})}))
		})
		old := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindRWMutex, Weight: 3, Limit: 3, Token: 1024}
		next := old
		next.ID, next.Token = "s.2", 0
		done, err := s.Edit(t.Context(), driver.Edit{
			Release: &driver.Release{Claim: old}, Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: time.Now().Add(time.Second)},
		})
		notices := done.Notices
		if err == nil || acquires != 1 {
			t.Fatalf("got %v after %d tries to join, want an error after one", err, acquires)
		}
		want := driver.Notice{Type: driver.NoticeGrant, Session: "b", Key: "k", Claim: "b.1", Token: 2048, Address: 5}
		if len(notices) != 1 || notices[0] != want {
			t.Errorf("notices %+v, want %+v", notices, want)
		}
	})
}
