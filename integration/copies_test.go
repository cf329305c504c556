package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A copier records the commands that a store sends, and can send them again.
type copier struct {
	driver.Store
	db *mongo.Database

	mu   sync.Mutex
	sent []bson.Raw
}

func newCopier(r *room) *copier {
	r.t.Helper()
	c := new(copier)
	mon := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "update" || e.CommandName == "findAndModify" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sent = append(c.sent, append(bson.Raw(nil), e.Command...))
		}
	}})
	c.db = r.Client(r.t, mon).Database(r.DB)
	store, err := dsyncmongo.NewStore(r.opening(), c.db, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	c.Store = store
	return c
}

// took returns the commands sent since the last call of took.
func (c *copier) took() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// put saves the commands in sent. The next call of took returns them first, and then the commands sent in the meantime.
func (c *copier) put(sent []bson.Raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = sent
}

// c.again sends the commands once more, as a network that delivers messages twice would.
func (c *copier) again(t *testing.T, commands []bson.Raw) {
	t.Helper()
	for _, raw := range commands {
		elements, err := raw.Elements()
		noErr(t, err)
		var cmd bson.D
		for _, e := range elements {
			if k := e.Key(); !strings.HasPrefix(k, "$") && k != "lsid" && k != "txnNumber" {
				cmd = append(cmd, bson.E{Key: k, Value: e.Value()})
			}
		}
		c.db.RunCommand(t.Context(), cmd) // a late copy may fail
	}
}

// B31: the network delivers copies of an Acquire's commands right after the claim's release. If the Acquire returned
// State.Final, the copies change nothing. Otherwise the copies acquire the key again, and Discard releases the key to
// the next waiter.
func TestB31CopiesOfRequests(t *testing.T) {
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		c := newCopier(r)
		n := 0
		claim := func(kind driver.Kind, key string) driver.Claim {
			n++
			return driver.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: kind, Weight: 1, Limit: 1}
		}
		join := func(t *testing.T, j driver.Acquire, leave *driver.Release) driver.State {
			t.Helper()
			j.NotAfter = time.Now().Add(time.Hour)
			done, err := c.Edit(t.Context(), driver.Edit{Release: leave, Acquire: &j})
			noErr(t, err)
			return done.State
		}
		acquire := func(t *testing.T, a driver.Claim, wait bool) driver.State {
			t.Helper()
			return join(t, driver.Acquire{Claim: a, Wait: wait}, nil)
		}
		release := func(t *testing.T, a driver.Claim) {
			t.Helper()
			if h, ok := load(t, c, a.Key).Holder(a.ID); ok {
				a.Token, a.NoneWaiting = h.Token, true
			}
			if _, _, err := storecmd.Release(t.Context(), c, a, driver.Release{}); err != nil {
				t.Fatal(err)
			}
		}
		lease := func(a driver.Claim) driver.Claim { a.Lease = time.Hour; return a }
		semaphore := func(key string) driver.Claim {
			a := claim(driver.KindSemaphore, key)
			a.Limit = 3
			return a
		}
		cases := []struct {
			name string
			do   func(t *testing.T, key string) (driver.Claim, driver.State)
		}{
			{"a new key", func(t *testing.T, key string) (driver.Claim, driver.State) {
				a := claim(driver.KindMutex, key)
				return a, acquire(t, a, true)
			}},
			{"a hot key", func(t *testing.T, key string) (driver.Claim, driver.State) {
				for range 2 {
					a := claim(driver.KindMutex, key)
					acquire(t, a, true)
					release(t, a)
				}
				c.took()
				a := claim(driver.KindMutex, key)
				return a, acquire(t, a, true)
			}},
			{"a try", func(t *testing.T, key string) (driver.Claim, driver.State) {
				a := claim(driver.KindMutex, key)
				return a, acquire(t, a, false)
			}},
			{"an election", func(t *testing.T, key string) (driver.Claim, driver.State) {
				a := claim(driver.KindElection, key)
				return a, acquire(t, a, true)
			}},
			{"a lease", func(t *testing.T, key string) (driver.Claim, driver.State) {
				a := lease(claim(driver.KindMutex, key))
				return a, acquire(t, a, true)
			}},
			{"a part of a semaphore", func(t *testing.T, key string) (driver.Claim, driver.State) {
				a := semaphore(key)
				return a, acquire(t, a, true)
			}},
			{"a try that failed", func(t *testing.T, key string) (driver.Claim, driver.State) {
				holder, a := claim(driver.KindMutex, key), claim(driver.KindMutex, key)
				acquire(t, holder, true)
				c.took()
				st := acquire(t, a, false)
				sent := c.took()
				release(t, holder)
				c.put(sent)
				return a, st
			}},
			{"a poll", func(t *testing.T, key string) (driver.Claim, driver.State) {
				holder, a := claim(driver.KindMutex, key), claim(driver.KindMutex, key)
				acquire(t, holder, true)
				acquire(t, a, true)
				c.took()
				st := join(t, driver.Acquire{Claim: a, Wait: true, Repeated: true}, nil)
				sent := c.took()
				release(t, holder)
				c.put(sent)
				return a, st
			}},
			{"a request that replaces another", func(t *testing.T, key string) (driver.Claim, driver.State) {
				old, a := claim(driver.KindMutex, key), claim(driver.KindMutex, key)
				st := acquire(t, old, true)
				old.Token = st.Token
				c.took()
				return a, join(t, driver.Acquire{Claim: a, Wait: true}, &driver.Release{Claim: old})
			}},
		}
		final := make(map[string]bool)
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				key := "copies of " + tc.name
				a, st := tc.do(t, key)
				copies := c.took()
				if len(copies) == 0 {
					t.Fatal("the copier saw no command")
				}
				release(t, a)
				c.again(t, copies)
				_, joined := load(t, c, key).Holder(a.ID)
				if final[tc.name] = st.Final; st.Final {
					if joined {
						t.Error("a copy of a final request acquired the key")
					}
					return
				}
				if !joined {
					t.Error("the copies changed nothing, though the request is not final: either the test is broken, or the store could report the request as final")
				}
				if _, err := c.Discard(t.Context(), []driver.Claim{a}); err != nil {
					t.Fatal(err)
				}
				next := claim(a.Kind, key)
				next.Limit = a.Limit
				if st := acquire(t, next, true); len(st.Holders) != 1 || st.Holders[0].Claim != next.ID {
					t.Errorf("after Discard: held by %v", st.Holders)
				}
			})
		}
		// Promise 7 needs these requests to be final: otherwise an ordinary Lock and Unlock would need a further
		// command.
		if !final["a new key"] && !s.FerretDB() || !final["a hot key"] {
			t.Errorf("not final: %v", final)
		}
	})
}
