package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Close of a session whose holders are done as soon as they learn of it. The server is 20 ms away. Where Releases go
// together, those of 10,000 holds take a few dozen commands. Elsewhere, and if the keys are contended, each takes
// commands of its own, but at most 32 at a time, because Connect's client has 36 connections. If Close's context has
// ended, Close keeps the claims in the store for the holders' grace; such Releases go together, too.
func TestCloseWithManyHolds(t *testing.T) {
	testkit.Large(t)
	const away, single = 20 * time.Millisecond, 32
	for name, test := range map[string]struct {
		hello     func(bson.D) bson.D
		contended bool
		hurried   bool // Close's context has ended, and the holders are not done
		deleted   bool // the record of a key was deleted, so the reply to a bulk proves nothing of its other statements
		holds     int
		most      int // commands in all
		atOnce    int // commands under way
		took      time.Duration
	}{
		"together":             {holds: 10_000, most: 60, atOnce: single, took: 500 * time.Millisecond},
		"in a hurry":           {hurried: true, holds: 10_000, most: 60, atOnce: single, took: 500 * time.Millisecond},
		"a record is missing":  {hurried: true, deleted: true, holds: 2_000, most: 1_060, atOnce: single, took: 2 * time.Second},
		"on a sharded cluster": {hello: asMongos, holds: 640, most: 640, atOnce: single, took: 640 / single * away},
		"not MongoDB":          {hello: without("topologyVersion"), holds: 640, most: 640, atOnce: single, took: 640 / single * away},
		"contended":            {contended: true, holds: 640, most: 2*640 + 60, atOnce: single, took: time.Minute},
	} {
		inBubble(t, name, func(t *testing.T) {
			var wait atomic.Int64
			var underWay testkit.Gauge
			var mu sync.Mutex
			commands, released := 0, 0
			records := edited{unmet: func(string) bool { return test.contended }}
			f := newFake(t)
			if test.hello != nil {
				f.say(test.hello)
			}
			client := f.anyClient(options.Client().SetMaxPoolSize(100))
			s := f.storeOn(client, nil, func(c call) bson.D {
				if strings.HasPrefix(text(c, "query", "_id"), "s/") || c.name == "aggregate" {
					return append(cursor(records.read(c)...), e("value", bson.D{e("at", time.Now())}))
				}
				defer underWay.Begin()()
				time.Sleep(time.Duration(wait.Load()))
				mu.Lock()
				defer mu.Unlock()
				commands++
				n := editsIn(c)
				switch upsert, _ := c.cmd.Lookup("updates", "0", "upsert").BooleanOK(); {
				case upsert:
					return upsertedAll(n)
				case c.name == "findAndModify": // the server is not MongoDB, or the key is contended
					if wait.Load() > 0 {
						released++
					}
					return ok(e("value", bson.D{
						e("now", time.Now()), e("y", "mutex"), e("c", 1), e("f", 2),
						e("h", bson.A{bson.D{e("a", anyClaim.FindStringSubmatch(c.cmd.String())[1]), e("s", "s"), e("w", 1), e("t", int64(1024))}}),
					}))
				case test.contended && n > 1:
					return records.change(c)
				case test.contended:
					return unwritten(241)
				}
				released += n
				if test.deleted && n > 1 {
					test.deleted = false
					n--
				}
				return ok(e("n", n), e("nModified", n))
			})
			locks, err := dsync.New(s, &dsync.Options{TTL: 30 * time.Second, Retention: -1, Logger: slog.New(slog.DiscardHandler)})
			noErr(t, err)
			var holders sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			closed := make(chan struct{})
			if !test.hurried {
				close(closed)
			}
			for i := range test.holds {
				h, err := locks.Mutex(fmt.Sprint("key ", i)).Hold(t.Context())
				noErr(t, err)
				holders.Go(func() {
					<-h.Lost()
					<-closed
					if err := h.Release(context.Background()); !errors.Is(err, dsync.ErrLost) {
						t.Errorf("Release: %v, want ErrLost", err)
					}
				})
			}
			synctest.Wait()
			commands = 0
			underWay.Peak()
			wait.Store(int64(away))
			began := time.Now()
			if test.hurried {
				cancel()
			}
			if err := locks.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			took := time.Since(began)
			if test.hurried {
				close(closed)
			}
			holders.Wait()
			peak := underWay.Peak()
			if commands > test.most || peak > test.atOnce || took > test.took {
				t.Errorf("Close of %d holds took %d commands, %d at a time, and %v; want at most %d, %d and %v",
					test.holds, commands, peak, took, test.most, test.atOnce, test.took)
			}
			if want := test.holds; released < want {
				t.Errorf("%d claims were released, want %d", released, want)
			}
		})
	}
}

// LockAll locks its keys in order, each with a command of its own. It unlocks them at the same time, so their Releases
// go together.
func TestLockAllCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100
		b := newBulkServer(t, nil)
		locks := testkit.NewSession(t, onlyKeys{b.s}, nil)
		var all []dsync.Locker
		for i := range keys {
			all = append(all, locks.Mutex(fmt.Sprintf("key %03d", i)))
		}
		_, unlock, err := dsync.LockAll(t.Context(), all...)
		testkit.NoErr(t, err)
		wantSent(t, "LockAll", b.sent(), ones(keys)...)
		testkit.NoErr(t, unlock())
		sent, released := b.sent(), 0
		for _, n := range sent {
			released += n
		}
		if released != keys || len(sent) > 12 { // the session sends 32 Releases at a time
			t.Errorf("unlock released %d keys with commands of %v statements, want %d keys and at most 12 commands", released, sent, keys)
		}
	})
}

// The type onlyKeys is a store whose sessions take no commands.
type onlyKeys struct{ driver.Store }

func (onlyKeys) Register(context.Context, driver.Member) (time.Time, error) { return time.Now(), nil }

func (onlyKeys) Expire(context.Context, string, bool) (time.Duration, error) { return 0, nil }

func (onlyKeys) Heartbeat(context.Context, string, []driver.Revocation) (driver.HeartbeatReply, error) {
	return driver.HeartbeatReply{Now: time.Now()}, nil
}
