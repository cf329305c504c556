package mongo_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Release with a Successor is one command, whose filter matches only if the claim holds the key. The reply still
// contains the claim if and only if the successor did not wait.
func TestReleaseToASuccessor(t *testing.T) {
	c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindElection, Weight: 1, Limit: 1, Token: 1024, NoneWaiting: true}
	holder := func(claim string) bson.D {
		return bson.D{e("a", claim), e("s", claim[:1]), e("w", 1), e("t", int64(2048)), e("at", time.Now()), e("p", int64(5))}
	}
	held := func(claim string) bson.D {
		return ok(e("value", bson.D{e("now", time.Now()), e("at", time.Now()), e("h", bson.A{holder(claim)})}))
	}
	for _, tc := range []struct {
		name    string
		reply   func() bson.D
		found   bool
		notices int
		err     error
	}{
		{"granted", func() bson.D { return held("b.1") }, true, 1, nil},
		{"not waiting", func() bson.D { return held("s.1") }, false, 0, driver.ErrNotWaiting},
		{"not held", func() bson.D { return ok(e("value", nil)) }, false, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				s := f.store(nil, func(call) bson.D { return tc.reply() })
				f.took()
				found, notices, err := storecmd.Release(t.Context(), s, c, driver.Release{Successor: "b.1"})
				if found != tc.found || len(notices) != tc.notices || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
					t.Errorf("Release = %t, %+v, %v; want %t, %d notices, %v", found, notices, err, tc.found, tc.notices, tc.err)
				}
				sent := f.took()
				if len(sent) != 1 {
					t.Fatalf("%d commands were sent, want 1: %v", len(sent), sent)
				}
				if got, _ := sent[0].cmd.Lookup("query", "h.a").StringValueOK(); got != c.ID {
					t.Errorf("the command is %v, want its filter to ask for the holder %s", sent[0].cmd, c.ID)
				}
			})
		})
	}
}
