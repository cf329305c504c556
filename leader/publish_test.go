package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// The value in the variable later is too long for the write that elects a leader, so it is published after the
// election.
var later = strings.Repeat("a", driver.MaxClaimValue+1)

// Every write that elects a leader also publishes the leader's value, if it is short. So whoever sees the leader sees
// the value, too, and publishing costs no extra command.
func TestValueIsPartOfTheElection(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			full := later[1:]
			values := map[string]string{"a": "10.0.0.1:8080", "b": full, "c": "\xff\x00"}
			elections := make(map[string]*leader.Election)
			for name, value := range values {
				s := newSession(t, store, &dsync.Options{Name: name})
				elections[name] = electionOf(t, s, &leader.Options{Value: []byte(value)})
			}
			terms := 0
			seen := newElection(t, store, nil).Observe(t.Context())
			<-seen
			wantLeader := func(name string) {
				t.Helper()
				l := <-seen
				for l.Session == "" {
					l = <-seen
				}
				if terms++; l.Name != name || string(l.Value) != values[name] || l.Term != int64(terms) {
					t.Errorf("observed %+v, want %s with its value in term %d", l, name, terms)
				}
			}
			elected := make(chan string)
			next := func(name string) {
				go func() {
					elections[name].Campaign(t.Context())
					elected <- name
				}()
				time.Sleep(time.Millisecond) // until the candidate is in the queue
			}
			campaign(t, elections["a"])
			wantLeader("a")
			next("b")
			next("c")
			elections["a"].Resign(background)
			wantLeader(<-elected)
			next("a")
			all, err := elections["b"].Candidates(background)
			noErr(t, err)
			i := slices.IndexFunc(all, func(c leader.Candidate) bool { return c.Name == "a" })
			noErr(t, elections["b"].Transfer(background, all[i]))
			wantLeader(<-elected)
			next("b")
			elections["a"].Resign(background)
			wantLeader(<-elected)
			if _, err := elections["b"].TryCampaign(background); err == nil {
				t.Error("two processes lead")
			}
			elections["c"].Resign(background)
			wantLeader(<-elected)
			elections["b"].Resign(background)
			time.Sleep(time.Minute)
			if _, err := elections["c"].TryCampaign(background); err != nil {
				t.Error(err)
			}
			wantLeader("c")
			if n := store.Counts().Commands[dsynctest.MethodPublish]; n != 0 {
				t.Errorf("%d commands to publish, want none", n)
			}
		})
	}
}

// faultOfPublish returns a function that injects the fault into each Publish, as long as may() returns true.
func faultOfPublish(fault dsynctest.Fault, may func() bool) func(dsynctest.Request) dsynctest.Fault {
	return func(r dsynctest.Request) dsynctest.Fault {
		if r.Method == dsynctest.MethodPublish && may() {
			return fault
		}
		return dsynctest.Fault{}
	}
}

// wantValue checks the value in the store.
func wantValue(t *testing.T, store driver.Store, want string) {
	t.Helper()
	if st, err := store.Load(background, "e", 1000); err != nil || string(st.Value) != want {
		t.Errorf("published: %q (%v), want %q", st.Value, err, want)
	}
}

// The work starts as soon as the process is elected, even if publishing Options.Value fails or
// hangs, and Resign does not wait for publishing. The value is published as soon as the store can
// be reached.
func TestWorkDoesNotWaitForItsValue(t *testing.T) {
	for name, fault := range map[string]dsynctest.Fault{
		"request lost": {LoseRequest: true},
		"reply lost":   {LoseReply: true},
		"slow":         {Delay: ttl / 10, ReplyDelay: ttl / 20},
		"hangs":        {Hang: 10 * time.Minute},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			start := time.Now()
			f := newFaulty(t, store, faultOfPublish(fault, func() bool { return time.Since(start) < ttl }))
			e := newElection(t, f, &leader.Options{Value: []byte(later)})
			for name, work := range map[string]func(){
				"Campaign":     func() { campaign(t, e) },
				"TryCampaign":  func() { e.TryCampaign(background) },
				"CampaignChan": func() { <-e.CampaignChan(background) },
				"Run":          func() { e.Run(background, func(context.Context) error { return nil }) },
			} {
				work()
				if err := e.Resign(background); err != nil || !time.Now().Equal(start) {
					t.Fatalf("%s and Resign: %v after %v", name, err, time.Since(start))
				}
			}
			campaign(t, e)
			time.Sleep(2 * ttl)
			wantValue(t, store, later)
			if !e.IsLeader() {
				t.Error("the leadership is lost")
			}
		})
	}
}

// A value that the user publishes replaces Options.Value, even if Options.Value reaches the store
// later.
func TestPublishWinsOverTheFirstValue(t *testing.T) {
	for name, fault := range map[string]dsynctest.Fault{
		"late":              {Delay: time.Second},
		"lost":              {LoseRequest: true},
		"lost, but arrives": {LoseRequest: true, Again: ttl},
	} {
		for _, by := range []string{"caller", "hook"} {
			inBubble(t, name+", by the "+by, func(t *testing.T) {
				store := dsynctest.NewMemory()
				first := 3
				f := newFaulty(t, store, faultOfPublish(fault, func() bool { first--; return first >= 0 }))
				var e *leader.Election
				publish := func() {
					for e.Publish(background, []byte("new")) != nil {
					}
				}
				opt := &leader.Options{Value: []byte(later)}
				if by == "hook" {
					opt.Hooks = &leader.Hooks{Elected: func(context.Context, leader.Term) { publish() }}
				}
				e = newElection(t, f, opt)
				campaign(t, e)
				if by == "caller" {
					publish()
				}
				time.Sleep(3 * ttl)
				wantValue(t, store, "new")
			})
		}
	}
}

// Publishing is retried until the term ends, and each failure is reported. After the term nothing
// is sent.
func TestPublishingEndsWithTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		sent := 0
		f := newFaulty(t, store, faultOfPublish(dsynctest.Fault{LoseRequest: true}, func() bool { sent++; return true }))
		var failed []string
		reports := &dsync.Options{Hooks: &dsync.Hooks{StoreError: func(op string, _ error) { failed = append(failed, op) }}}
		e := electionOf(t, newSession(t, f, reports), &leader.Options{Value: []byte(later)})
		campaign(t, e)
		time.Sleep(3 * ttl)
		noErr(t, e.Resign(background))
		time.Sleep(ttl / 2)
		synctest.Wait()
		before := sent
		if before < 9 || before > 3*20 { // an attempt ends after a sixth of the TTL
			t.Errorf("%d attempts to publish in three TTLs, want 9 to 60", before)
		}
		time.Sleep(ttl)
		synctest.Wait()
		if sent != before {
			t.Errorf("%d attempts to publish after the term, want none", sent-before)
		}
		if len(failed) != sent || slices.ContainsFunc(failed, func(op string) bool { return op != "Publish" }) {
			t.Errorf("there were %d attempts to publish, but StoreError was called for %q", sent, failed)
		}
	})
}

// If the store refuses to publish, the process tries once per term, and StoreError reports the
// refusal.
func TestPublishingIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &refusesToPublish{Store: dsynctest.NewMemory()}
		var failed []string
		reports := &dsync.Options{Hooks: &dsync.Hooks{StoreError: func(op string, _ error) { failed = append(failed, op) }}}
		e := electionOf(t, newSession(t, store, reports), &leader.Options{Value: []byte(later)})
		campaign(t, e)
		time.Sleep(2 * ttl)
		synctest.Wait()
		if !e.IsLeader() || store.asked != 1 || !slices.Equal(failed, []string{"Publish"}) {
			t.Errorf("the process leads: %t; %d attempts to publish; reported: %q", e.IsLeader(), store.asked, failed)
		}
		err := e.Publish(background, nil)
		synctest.Wait()
		if !errors.Is(err, driver.ErrRefused) || store.asked != 2 || len(failed) > 1 {
			t.Errorf("Publish, whose caller learns of it: %v; %d attempts to publish; reported: %q", err, store.asked, failed)
		}
	})
}

type refusesToPublish struct {
	driver.Store
	asked int
}

func (s *refusesToPublish) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Publish == nil {
		return s.Store.Edit(ctx, e)
	}
	s.asked++
	return driver.Edited{}, driver.ErrRefused
}
