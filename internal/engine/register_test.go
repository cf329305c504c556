package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/xid"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// Two sessions can get equal xids, for example in two containers with process id 1 and the same machine id. Their ids
// still differ, because at least 64 random bits follow the xid.
func TestSessionsWithOneXIDHaveTheirOwnIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sessions = 300
		store := dsynctest.NewMemory()
		seen := make(map[string]bool)
		var at []map[rune]bool // the set of characters seen at each position after the xid
		for range sessions {
			s := newSession(t, store, nil)
			mu := s.Mutex("k")
			lock(t, mu)
			id := s.ID()
			mu.Unlock()
			if _, err := xid.FromString(id[:20]); err != nil {
				t.Fatalf("id %q does not begin with an xid: %v", id, err)
			}
			if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
				t.Errorf("id %q has characters other than letters, digits, '-' and '_'", id)
			}
			if rest := id[20:]; seen[rest] {
				t.Fatalf("two sessions have %q after the xid", rest)
			} else {
				seen[rest] = true
			}
			for i, c := range id[20:] {
				if i == len(at) {
					at = append(at, make(map[rune]bool))
				}
				at[i][c] = true
			}
		}
		bits := 0.0
		for _, chars := range at {
			bits += math.Log2(float64(len(chars)))
		}
		if bits < 64 {
			t.Errorf("what follows the xid of %d sessions has %.0f bits, want at least 64", sessions, bits)
		}
	})
}

// A takenStore registers the ids of the first requests for another process before it passes the requests on.
type takenStore struct {
	*dsynctest.Memory
	ids   []string // the ids of all requests
	taken int      // how many ids are taken that way
}

func (s *takenStore) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	s.ids = append(s.ids, m.ID)
	if len(s.ids) <= s.taken {
		if _, err := s.Memory.Register(ctx, driver.Member{ID: m.ID, TTL: time.Hour, Name: "another"}); err != nil {
			return time.Time{}, err
		}
	}
	return s.Memory.Register(ctx, m)
}

// A session whose id is already registered for another process does not take over that registration. Its next attempt
// uses a new id, and its waiter continues.
func TestSessionTakesAnotherIDIfItsOwnIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takenStore{Memory: dsynctest.NewMemory(), taken: 2}
		var failed []error
		s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{StoreError: func(op string, err error) { failed = append(failed, err) }}})
		mu := s.Mutex("k")
		wantErr(t, "TryHold", errOf(mu.TryHold(background)), driver.ErrSessionExists)
		lock(t, mu)
		if len(store.ids) != 3 || s.ID() != store.ids[2] || store.ids[0] == store.ids[1] || store.ids[1] == store.ids[2] {
			t.Fatalf("registered as %q; the requested ids were %q; want the third, and all different", s.ID(), store.ids)
		}
		members, _, err := storecmd.Members(background, store, store.ids[:2]...)
		if err != nil || len(members) != 2 || members[0].Name != "another" || members[1].Name != "another" {
			t.Errorf("the others' records are %+v, %v; want them as they were", members, err)
		}
		mu.Unlock()
		if err := s.Close(background); err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the hooks
		if len(failed) != 2 || !errors.Is(errors.Join(failed...), driver.ErrSessionExists) {
			t.Errorf("StoreError was called with %v, want the two refusals", failed)
		}
	})
}

// A session has no id before its first use. Register gives the session the id under which it will hold locks. Further
// calls of Register send nothing.
func TestRegisterBeforeFirstUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var started []string
		s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{SessionStarted: func(id string) { started = append(started, id) }}})
		if id := s.ID(); id != "" {
			t.Errorf("id before the first use: %q", id)
		}
		const goroutines = 5
		ids := make(chan string, goroutines)
		for range goroutines {
			go func() {
				id, err := engine.Of(s).Register(background)
				if err != nil {
					t.Error(err)
				}
				ids <- id
			}()
		}
		id := <-ids
		for range goroutines - 1 {
			if other := <-ids; other != id {
				t.Errorf("two ids: %q and %q", id, other)
			}
		}
		if n := store.Counts().Commands[dsynctest.MethodRegister]; n != 1 || id == "" || s.ID() != id {
			t.Errorf("%d commands; registered as %q, ID is %q", n, id, s.ID())
		}
		time.Sleep(10 * ttl)
		mu := s.Mutex("k")
		lock(t, mu)
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Session != id {
			t.Errorf("the key is held by %v, want the session %q", h, id)
		}
		mu.Unlock()
		members, _, err := admin.New(s).Members(background)
		if err != nil || len(members) != 1 || members[0].ID != id {
			t.Errorf("members %v, %v; want %q", members, err, id)
		}
		synctest.Wait()
		if len(started) != 1 || started[0] != id {
			t.Errorf("SessionStarted was called with %q", started)
		}
		s.Close(background)
		if _, err := engine.Of(s).Register(background); !errors.Is(err, dsync.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	})
}

// After a loss, Register returns a new id. While the store does not answer, Register returns an error within a sixth of
// the TTL, or when ctx ends.
func TestRegisterAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, nil)
		id, err := engine.Of(s).Register(background)
		noErr(t, err)
		f.Cut()
		time.Sleep(ttl)
		begin := time.Now()
		if id, err := engine.Of(s).Register(background); err == nil || id != "" || time.Since(begin) > ttl/6 {
			t.Errorf("Register in an outage: %q, %v after %v; want an error and no id within a sixth of the TTL", id, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(background, ttl/100)
		defer cancel()
		if _, err := engine.Of(s).Register(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Register when ctx has ended: %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(ttl)
		f.Heal()
		again, err := engine.Of(s).Register(background)
		if err != nil || again == id || again != s.ID() {
			t.Errorf("after the outage: %q, %v; before it was %q", again, err, id)
		}
	})
}

// B42: for ten minutes, a store answers too late or not at all. Each process creates at most one record in that time,
// and soon afterwards all processes are registered.
func TestRegistrationsDoNotPileUp_B42(t *testing.T) {
	for name, fault := range map[string]dsynctest.Fault{
		"replies come too late":                    {ReplyDelay: ttl / 5},
		"requests and replies come late":           {Delay: ttl / 10, ReplyDelay: ttl / 10},
		"requests come after their time, in order": {Delay: ttl / 5},
		"replies are lost":                         {LoseReply: true},
		"requests are lost":                        {LoseRequest: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			const processes = 5
			memory := dsynctest.NewMemory()
			var slow atomic.Bool
			slow.Store(true)
			served := make(chan struct{}, processes)
			for i := range processes {
				f := newFaulty(t, memory, func(dsynctest.Request) (f dsynctest.Fault) {
					if slow.Load() {
						f = fault
					}
					return f
				})
				s := newSession(t, f, nil)
				go func() { s.Mutex(fmt.Sprint(i)).Lock(); served <- struct{}{} }()
			}
			time.Sleep(10 * time.Minute)
			slow.Store(false)
			for range processes {
				<-served
			}
			time.Sleep(2 * ttl)
			if ids := memory.SessionRecords(); len(ids) > processes {
				t.Errorf("%d records of %d processes, want at most one each", len(ids), processes)
			}
			alive, _, err := memory.Sessions(background, driver.SessionQuery{})
			if err != nil || len(alive) != processes {
				t.Errorf("%d members, %v; want %d", len(alive), err, processes)
			}
		})
	}
}

// After a registration that got no reply, the session may still be listed. The error of Close says so, but only for as
// long as this is possible.
func TestCloseAfterARegistrationWithoutAnAnswer(t *testing.T) {
	for _, fault := range []dsynctest.Fault{{LoseReply: true}, {LoseRequest: true}} {
		for after, want := range map[time.Duration]error{0: dsync.ErrNotUnregistered, ttl / 2: dsync.ErrNotUnregistered, 2 * ttl: nil} {
			inBubble(t, fmt.Sprintf("%+v, %v later", fault, after), func(t *testing.T) {
				memory := dsynctest.NewMemory()
				s := newSession(t, newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault { return fault }), nil)
				if _, err := engine.Of(s).Register(background); err == nil {
					t.Fatal("Register succeeded, so this tests nothing")
				}
				time.Sleep(after)
				err := s.Close(background)
				if !errors.Is(err, want) {
					t.Errorf("Close: %v, want %v", err, want)
				}
				listed, _, lerr := memory.Sessions(background, driver.SessionQuery{})
				if lerr != nil || len(listed) > 0 && err == nil {
					t.Errorf("Close returned nil, but the members are %v, %v", listed, lerr)
				}
			})
		}
	}
}
