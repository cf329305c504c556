package mongo_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/engine"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// checks is how often the driver checks the server in these tests: the shortest interval that it accepts.
const checks = 500 * time.Millisecond

// newWatched is like newHearing, but with a PrimaryWatch.
func newWatched(t *testing.T, hello func(bson.D) bson.D) *hearing {
	t.Helper()
	watch := new(dsyncmongo.PrimaryWatch)
	client := options.Client().SetHeartbeatInterval(checks).SetServerMonitor(watch.ServerMonitor(nil))
	return newHearing(t, hello, &dsyncmongo.Options{PrimaryWatch: watch}, client)
}

// elected turns a reply to hello into the reply of the n-th elected primary.
func elected(n int) func(bson.D) bson.D {
	return func(d bson.D) bson.D {
		id := bson.ObjectID{}
		id[11] = byte(n)
		return append(without("electionId")(d), e("electionId", id))
	}
}

// deposed turns a reply to hello into the reply of a former primary while there is no primary.
func deposed(d bson.D) bson.D {
	for _, field := range []string{"isWritablePrimary", "ismaster", "primary", "electionId"} {
		d = without(field)(d)
	}
	return append(d, e("isWritablePrimary", false), e("ismaster", false), e("secondary", true))
}

// electedAgain undoes deposed: it turns a reply to hello into the reply of the n-th elected primary.
func electedAgain(n int) func(bson.D) bson.D {
	return func(d bson.D) bson.D {
		for _, field := range []string{"isWritablePrimary", "ismaster", "secondary"} {
			d = without(field)(d)
		}
		return elected(n)(append(d, e("isWritablePrimary", true), e("ismaster", true), e("primary", "fake:27017")))
	}
}

// Within a second after the driver has found a new primary, a listener opens a cursor on it and reports NoticeReady.
// It does so even if the cursor on the former primary stays open. While there is no primary, the listener keeps its
// cursor.
func TestListenFollowsThePrimaryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWatched(t, elected(1))
		h.listen("s")
		h.want("at the beginning", nil, 1)
		before := h.collections.count("find")
		time.Sleep(3 * time.Second)
		for n := 2; n < 5; n++ {
			h.f.say(deposed)
			time.Sleep(4 * time.Second)
			if n := h.collections.count("find"); n != before {
				t.Errorf("%d new cursors during the election, want none", n-before)
			}
			h.want("no primary", nil, 0)
			h.f.say(electedAgain(n))
			time.Sleep(checks + time.Second)
			h.want("a new primary", nil, 1)
			h.notify(wake("s", n, h.address))
			h.want("from it", []driver.Notice{wake("s", n, h.address)}, 0)
			if got := h.collections.count("find"); got != before+1 {
				t.Errorf("%d new cursors, want one", got-before)
			}
			before = h.collections.count("find")
		}
	})
}

// Driver events about the same primary don't make listeners open cursors. If primaries follow each other quickly,
// listeners open at most one cursor a second.
func TestListenIsNotFloodedByEvents(t *testing.T) {
	const during = 20 * time.Second
	cases := map[string]struct {
		change func(n int) func(bson.D) bson.D
		most   int // greatest number of new cursors
	}{
		"the same primary": {func(n int) func(bson.D) bson.D {
			return func(d bson.D) bson.D {
				return append(without("tags")(d), e("tags", bson.D{e("n", string(rune('a'+n%26)))}))
			}
		}, 0},
		"elections": {elected, int(during/time.Second) + 1},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			h := newWatched(t, elected(1))
			h.listen("s")
			h.took()
			before := h.collections.count("find")
			for n := range int(during / checks) {
				h.f.say(tc.change(n + 2))
				time.Sleep(checks)
			}
			time.Sleep(time.Second)
			_, readies := h.took()
			if n := h.collections.count("find") - before; n > tc.most || readies > n || readies == 0 && tc.most > 0 {
				t.Errorf("%d new cursors, ready %d times; want at most %d new cursors, and not more readies than cursors", n, readies, tc.most)
			}
		})
	}
}

// Without a PrimaryWatch, a listener asks for the primary after each heartbeat.
func TestListenAsksForThePrimaryWithHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, elected(1), nil)
		h.listen("s")
		h.took()
		time.Sleep(time.Second)
		h.f.say(elected(2))
		time.Sleep(time.Second)
		h.want("before a heartbeat", nil, 0)
		if _, err := h.s.Heartbeat(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		h.want("after a heartbeat", nil, 1)
	})
}

// The listeners of one store share the hello that finds the primary. If each of n listeners asked after the heartbeat
// of every session, they would ask n² times.
func TestListenersAskForThePrimaryTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions = 40
		var asked atomic.Int64
		client := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "hello" {
				asked.Add(1)
			}
		}})
		h := newHearing(t, elected(1), nil, client)
		var listening sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		var heard [sessions]atomic.Int64 // number of NoticeReadys of each session
		for i := range sessions {
			listening.Go(func() {
				h.s.Listen(ctx, fmt.Sprint("s", i), nil, func(driver.Notice) { heard[i].Add(1) })
			})
		}
		defer listening.Wait()
		defer cancel()
		time.Sleep(time.Second)
		for i := range 3 { // the second time, there is a new primary
			if i == 1 {
				h.f.say(elected(2))
			}
			before := asked.Load()
			if _, err := h.s.Heartbeat(t.Context(), "s0", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			n := asked.Load() - before
			if i == 1 {
				n -= sessions // each listener also asks once which member its new cursor is on
			}
			if n < 1 || n > sessions/2 { // a few listeners may be too late to share a hello
				t.Errorf("heartbeat %d: the %d sessions asked %d times for the primary, want from 1 to %d", i+1, sessions, n, sessions/2)
			}
		}
		for i := range heard {
			if n := heard[i].Load(); n != 2 {
				t.Errorf("session %d was ready %d times, want 2: at the beginning, and on the new primary", i, n)
			}
		}
	})
}

// A former primary that never answers again does not delay the cursor on the new one.
func TestListenDoesNotWaitForTheFormerPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWatched(t, elected(1))
		h.f.keeps = "killCursors"
		h.listen("s")
		h.took()
		time.Sleep(3 * time.Second)
		h.f.say(elected(2))
		time.Sleep(checks)
		h.want("a new primary", nil, 1)
	})
}

// Connect watches the primary without a PrimaryWatch in Options, and the caller's monitor is still called.
func TestConnectFollowsThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.say(elected(1))
		var topologies, servers atomic.Int64
		monitor := &event.ServerMonitor{
			TopologyDescriptionChanged: func(*event.TopologyDescriptionChangedEvent) { topologies.Add(1) },
			ServerDescriptionChanged:   func(*event.ServerDescriptionChangedEvent) { servers.Add(1) },
		}
		client := f.ClientOptions().SetHeartbeatInterval(checks).SetServerMonitor(monitor)
		s, err := dsyncmongo.Connect(t.Context(), client, "app", &dsyncmongo.Options{
			Session: dsync.Options{TTL: time.Minute, AlwaysListen: true},
		})
		noErr(t, err)
		defer f.Wait()
		defer s.Close(t.Context())
		if client.ServerMonitor != monitor {
			t.Error("the caller's client options were changed")
		}
		collections := newCapped(func(call) bson.D {
			return ok(e("value", bson.D{e("at", time.Now()), e("now", time.Now())}), e("n", 1), e("nModified", 1))
		})
		f.script(collections.answer)
		if _, err := engine.Of(s).Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second) // wait until a heartbeat has started the listener
		before := collections.count("find")
		if before == 0 {
			t.Fatal("nobody listens")
		}
		topologies.Store(0)
		servers.Store(0)
		f.say(elected(2))
		time.Sleep(checks + 100*time.Millisecond)
		if n := collections.count("find") - before; n != 1 {
			t.Errorf("%d new cursors, want one", n)
		}
		if topologies.Load() == 0 || servers.Load() == 0 {
			t.Errorf("the caller's monitor was called %d and %d times, want each function called", topologies.Load(), servers.Load())
		}
	})
}

// NewStore refuses a PrimaryWatch that is not the monitor of its client.
func TestPrimaryWatchOfAnotherClientIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, err := dsyncmongo.NewStore(t.Context(), f.client().Database("app"), &dsyncmongo.Options{PrimaryWatch: new(dsyncmongo.PrimaryWatch)})
		if err == nil || !strings.Contains(err.Error(), "SetServerMonitor") {
			t.Errorf("got %v, want an error that says SetServerMonitor", err)
		}
	})
}
