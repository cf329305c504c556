package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A store uses 32 connections for the commands on keys, however many calls wait. With four more, a session's heartbeat
// and registration never wait for these. The commands on keys take a second here, all others no time.
func TestUrgentCommands(t *testing.T) {
	edit := func(ctx context.Context, s driver.Store, i int) error {
		c := mutexClaim(i)
		c.Key, c.Limit = fmt.Sprint("key ", i), 2
		_, err := s.Edit(ctx, driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: time.Now().Add(time.Minute)}})
		return err
	}
	keys := func(ctx context.Context, s driver.Store, i int) error {
		_, err := s.Keys(ctx, driver.KeyQuery{Keys: []string{fmt.Sprint("key ", i)}})
		return err
	}
	busy := func(ctx context.Context, s driver.Store, i int) error {
		if i%2 == 0 {
			return keys(ctx, s, i)
		}
		return edit(ctx, s, i)
	}
	for name, test := range map[string]struct {
		call func(ctx context.Context, s driver.Store, i int) error
		took time.Duration
	}{
		"Heartbeat": {call: func(ctx context.Context, s driver.Store, _ int) error {
			_, err := s.Heartbeat(ctx, "s", nil)
			return err
		}},
		"Register": {call: func(ctx context.Context, s driver.Store, _ int) error {
			_, err := s.Register(ctx, driver.Member{ID: "s", TTL: time.Minute})
			return err
		}},
		"Edit": {call: edit, took: 3 * time.Second}, // after 32 + 32
		"Keys": {call: keys, took: 3 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			var underWay testkit.Gauge
			f := newFake(t)
			s := f.storeOn(f.anyClient(options.Client().SetMaxPoolSize(36)), nil, func(c call) bson.D {
				if strings.Contains(c.cmd.String(), `"k/`) {
					defer underWay.Begin()()
					time.Sleep(time.Second)
				}
				id := "none"
				if found := anyClaim.FindStringSubmatch(c.cmd.String()); found != nil {
					id = found[1]
				}
				return append(cursor(), e("value", bson.D{
					e("at", time.Now()), e("now", time.Now()), e("y", "semaphore"), e("c", 2), e("dead", true),
					e("h", bson.A{bson.D{e("a", id), e("s", "s"), e("w", 1), e("t", int64(1024))}}),
				}))
			})
			var calls sync.WaitGroup
			for i := range 64 {
				calls.Go(func() { testkit.NoErr(t, busy(t.Context(), s, i)) })
			}
			synctest.Wait()
			began := time.Now()
			testkit.NoErr(t, test.call(t.Context(), s, 64))
			if took := time.Since(began); took != test.took {
				t.Errorf("took %v beside 64 commands on keys, want %v", took, test.took)
			}
			calls.Wait()
			if peak := underWay.Peak(); peak != 32 {
				t.Errorf("%d commands on keys were under way at once, want 32", peak)
			}
		})
	}
}

// read starts n calls of Keys, and returns when each is under way or waits. The function wait returns when all have ended.
func read(t *testing.T, s driver.Store, n int) (wait func()) {
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			if _, err := s.Keys(t.Context(), driver.KeyQuery{Keys: []string{"k"}}); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	return calls.Wait
}

// A caller that gives up while it waits for a connection sends nothing.
func TestGiveUpBeforeAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.storeOn(f.anyClient(), nil, func(call) bson.D {
			time.Sleep(time.Second)
			return cursor()
		})
		wait := read(t, s, 32)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := s.Keys(ctx, driver.KeyQuery{Keys: []string{"k"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		wait()
		if n := len(f.took()); n != 32 {
			t.Errorf("sent %d commands, want 32", n)
		}
	})
}

// Listen finds a new primary even while commands on keys use all 32 connections.
func TestListenBesideBusyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil, options.Client().SetMaxPoolSize(36))
		h.f.say(elected(1))
		h.listen("s")
		h.want("at the beginning", nil, 1)
		h.f.script(func(c call) bson.D {
			if c.name == "aggregate" {
				time.Sleep(25 * time.Second)
				return cursor()
			}
			return h.collections.answer(c)
		})
		wait := read(t, h.s, 32)
		h.f.say(elected(2))
		time.Sleep(11 * time.Second)
		h.want("a new primary", nil, 1)
		wait()
	})
}

// A write that has waited for a connection waits for its majority no longer than its deadline.
func TestConfirmAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.storeOn(f.anyClient(), nil, func(c call) bson.D {
			time.Sleep(4 * time.Second)
			return append(cursor(), e("value", bson.D{e("at", time.Now())}))
		})
		wait := read(t, s, 32)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = s.Expire(ctx, "s", true)
		wait()
		sent := f.took()
		if limit, _ := sent[len(sent)-1].cmd.Lookup("writeConcern", "wtimeout").AsInt64OK(); limit >= 1000 {
			t.Errorf("one second before its deadline, a write waits %d ms for a majority", limit)
		}
	})
}

// Where statements go together, a session makes 64 calls at once, and elsewhere as many as there are connections, so
// that no call's time limit passes while it waits for one.
func TestCallsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		hello func(bson.D) bson.D
		want  int
	}{
		"together":             {want: 64},
		"on a sharded cluster": {hello: asMongos, want: 32},
		"not MongoDB":          {hello: without("topologyVersion"), want: 32},
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, test.hello)
			b.reply = time.Second
			s := &countingStore{Store: onlyKeys{b.s}, Limiter: b.s.(driver.Limiter)}
			locks := testkit.NewSession(t, s, nil)
			var callers sync.WaitGroup
			for i := range 200 {
				callers.Go(func() {
					_, err := locks.Mutex(fmt.Sprint("key ", i)).Hold(t.Context())
					testkit.NoErr(t, err)
				})
			}
			callers.Wait()
			if peak := s.underWay.Peak(); peak != test.want {
				t.Errorf("%d calls were under way at once, want %d", peak, test.want)
			}
		})
	}
}

// A countingStore counts the calls of Edit that are under way.
type countingStore struct {
	driver.Store
	driver.Limiter
	underWay testkit.Gauge
}

func (s *countingStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	defer s.underWay.Begin()()
	return s.Store.Edit(ctx, e)
}

func (*countingStore) Listen(context.Context, string, []string, func(driver.Notice)) error {
	return errors.ErrUnsupported
}
