package mongo_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B40: the server may refuse the command that finds a claim, or the claim's release. Discard still removes the other
// claims, and returns an error.
func TestDiscardGoesOnBehindARefusedClaim(t *testing.T) {
	for _, refuses := range []string{"update", "findAndModify"} {
		t.Run(refuses, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := []string{"a", "b", "c"}
				var released []string
				s := newFake(t).store(nil, func(c call) bson.D {
					switch c.name {
					case "update":
						reply := ok(e("n", 2), e("nModified", 0))
						if refuses == "update" {
							reply = append(reply, e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 10334), e("errmsg", "as the test says")}}))
						}
						return reply
					case "aggregate":
						var found bson.A
						for _, key := range keys {
							found = append(found, bson.D{e("_id", "k/"+key), e("h", bson.A{bson.D{e("a", "s."+key), e("s", "s"), e("w", 1), e("t", int64(1024))}})})
						}
						return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", found)}))
					case "findAndModify":
						id := c.cmd.Lookup("query", "_id").StringValue()
						if id == "k/a" && refuses == "findAndModify" {
							return refusal(13, "Unauthorized")
						}
						released = append(released, id)
						return ok(e("value", bson.D{e("now", time.Now()), e("h", bson.A{})}))
					}
					return ok()
				})
				var claims []driver.Claim
				for _, key := range keys {
					claims = append(claims, driver.Claim{Key: key, ID: "s." + key, Session: "s"})
				}
				_, err := s.Discard(t.Context(), claims)
				if err == nil || refuses == "findAndModify" && !errors.Is(err, driver.ErrRefused) {
					t.Errorf("Discard: %v, want the error of the claim that was refused", err)
				}
				for _, id := range []string{"k/b", "k/c"} {
					if !slices.Contains(released, id) {
						t.Errorf("released %q, want %s, too", released, id)
					}
				}
			})
		})
	}
}

// B40: if its ctx ends before it has removed all claims, Discard returns an error.
func TestDiscardOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := outOfTime{Context: context.Background()}
		released := 0
		s := newFake(t).store(nil, func(c call) bson.D {
			switch c.name {
			case "update":
				return ok(e("n", 2), e("nModified", 0))
			case "aggregate":
				var found bson.A
				for _, key := range []string{"a", "b"} {
					found = append(found, bson.D{e("_id", "k/"+key), e("h", bson.A{bson.D{e("a", "s."+key), e("s", "s"), e("w", 1), e("t", int64(1024))}})})
				}
				return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", found)}))
			case "findAndModify":
				released++
				ctx.over.Store(true)
				return ok(e("value", bson.D{e("now", time.Now()), e("h", bson.A{})}))
			}
			return ok()
		})
		claims := []driver.Claim{{Key: "a", ID: "s.a", Session: "s"}, {Key: "b", ID: "s.b", Session: "s"}}
		if _, err := s.Discard(&ctx, claims); !errors.Is(err, context.DeadlineExceeded) || released != 1 {
			t.Errorf("Discard: %v, after %d of 2 claims; want context.DeadlineExceeded after 1", err, released)
		}
	})
}

// outOfTime is a context that can end without closing its Done channel, as if it ended just after a reply.
type outOfTime struct {
	context.Context
	over atomic.Bool
}

func (c *outOfTime) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
