package mongo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// On a replica set, an early release is sent with w: 1, and Edit returns its position in the log. The next
// heartbeat returns the position up to which a majority has the log.
func TestEarlyRelease(t *testing.T) {
	opTime := func(s uint32, term int64) bson.D {
		return bson.D{e("ts", bson.Timestamp{T: s, I: 1}), e("t", term)}
	}
	at := func(s, term int64) driver.OpTime { return driver.OpTime{Term: term, Time: uint64(s)<<32 | 1} }
	for name, test := range map[string]struct {
		hello   func(bson.D) bson.D
		opTime  bson.D // in the reply to the release
		leave   driver.Release
		w       any // the write concern of the release
		applied driver.OpTime
		commits driver.OpTime // expected value of Committed in the reply to the heartbeat
	}{
		"replica set": {opTime: opTime(100, 7), leave: driver.Release{Early: true}, w: int32(1), applied: at(100, 7), commits: at(101, 7)},
		"not asked":   {opTime: opTime(100, 7), w: "majority"},
		"no opTime":   {leave: driver.Release{Early: true}, w: int32(1), applied: driver.OpTime{Term: -1}},
		"not MongoDB": {hello: without("topologyVersion"), leave: driver.Release{Early: true}, w: "majority"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				client := f.client()
				if test.hello != nil {
					f.say(test.hello)
				}
				s := f.storeOn(client, nil, func(c call) bson.D {
					if c.name == "update" {
						reply := ok(e("n", 1), e("nModified", 1))
						if test.opTime != nil {
							reply = append(reply, e("opTime", test.opTime))
						}
						return reply
					}
					return ok(e("value", bson.D{e("at", time.Now())}))
				})
				test.leave.Claim = mutexClaim(1)
				done, err := s.Edit(t.Context(), driver.Edit{Release: &test.leave})
				if err != nil || !done.Found || done.Applied != test.applied {
					t.Errorf("release: %+v, %v; want it found, and applied at %v", done, err, test.applied)
				}
				var w any
				f.took()[0].cmd.Lookup("writeConcern", "w").Unmarshal(&w)
				if w != test.w {
					t.Errorf("the release was sent with w: %v, want %v", w, test.w)
				}
				f.say(func(d bson.D) bson.D {
					return append(d, e("lastWrite", bson.D{e("majorityOpTime", opTime(101, 7))}))
				})
				for range 2 {
					if reply, err := s.Heartbeat(t.Context(), "s", nil); err != nil || reply.Committed != test.commits {
						t.Errorf("heartbeat: committed %v, %v; want %v", reply.Committed, err, test.commits)
					}
				}
			})
		})
	}
}
