package mongo_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
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
		inBubble(t, name, func(t *testing.T) {
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
	}
}

// An early release that has found nothing has no position in the log: there is nothing that a fail-over could undo.
func TestEarlyReleaseOfAMissingClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t).store(nil, func(c call) bson.D {
			if c.name == "update" {
				return ok(e("n", 0), e("nModified", 0), e("opTime", bson.D{e("ts", bson.Timestamp{T: 100, I: 1}), e("t", int64(7))}))
			}
			return ok(e("value", nil))
		})
		done, err := s.Edit(t.Context(), driver.Edit{Release: &driver.Release{Claim: mutexClaim(1), Early: true}})
		if err != nil || done.Found || done.Applied != (driver.OpTime{}) {
			t.Errorf("release: %+v, %v; want it not found, and no position", done, err)
		}
	})
}

// On a standalone, every write with w: "majority" also asks to wait for the journal. A replica set waits for the
// journal even without being asked. If the server has no journal, the log warns once of the consequences.
func TestStandaloneWritesWaitForTheJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		hello     func(bson.D) bson.D
		unjournal bool   // the server has no journal
		wait      string // how many writes ask for the journal: "all", "one" or "" for none
		warnings  int
	}{
		"replica set":                   {func(d bson.D) bson.D { return d }, false, "", 0},
		"standalone":                    {asStandalone, false, "all", 0},
		"mongos":                        {asMongos, false, "", 0},
		"standalone without a journal":  {asStandalone, true, "one", 1},
		"another product, a standalone": {func(d bson.D) bson.D { return without("topologyVersion")(asStandalone(d)) }, false, "", 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			f.hello = tc.hello(f.hello)
			f.script(func(c call) bson.D {
				if _, asked := c.cmd.Lookup("writeConcern", "j").BooleanOK(); asked && tc.unjournal {
					return bson.D{e("ok", 0), e("code", 2), e("codeName", "BadValue"), e("errmsg", "cannot use 'j' option when a host does not have journaling enabled")}
				}
				return honest(c)
			})
			var log strings.Builder
			client := f.anyClient()
			_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), &dsyncmongo.Options{Session: dsync.Options{
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			}})
			noErr(t, err)
			writes, waited := 0, 0
			for _, c := range f.took() {
				if w, _ := c.cmd.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
					continue
				}
				writes++
				if j, _ := c.cmd.Lookup("writeConcern", "j").BooleanOK(); j {
					waited++
				}
			}
			if want := map[string]int{"all": writes, "one": 1}[tc.wait]; waited != want || writes < 10 {
				t.Errorf("%d of %d writes waited for the journal, want %d of at least 10", waited, writes, want)
			}
			if n := strings.Count(log.String(), "journal"); n != tc.warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, tc.warnings, &log)
			}
		})
	}
}
