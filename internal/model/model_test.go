package model_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
)

// start is the time of the first edit of a script; each further edit is one second later.
var start = time.UnixMilli(1_000_000_000).UTC()

var never = start.Add(1000 * time.Hour)

// A step is one edit, and its expected result as done describes it.
type step struct {
	edit driver.Edit
	want string
}

// claim returns a claim with the given id. The part of the id before the dot is the id of its session.
func claim(id string, change ...func(*driver.Claim)) driver.Claim {
	session, _, _ := strings.Cut(id, ".")
	c := driver.Claim{Key: "k", ID: id, Session: session, Kind: driver.KindSemaphore, Weight: 1, Limit: 1}
	for _, f := range change {
		f(&c)
	}
	return c
}

func of(weight, limit int64) func(*driver.Claim) {
	return func(c *driver.Claim) { c.Weight, c.Limit = weight, limit }
}
func kind(k driver.Kind) func(*driver.Claim) { return func(c *driver.Claim) { c.Kind = k } }
func tick(n int64) func(*driver.Claim)       { return func(c *driver.Claim) { c.Tick = n } }
func token(n int64) func(*driver.Claim)      { return func(c *driver.Claim) { c.Token = n } }
func lease(d time.Duration) func(*driver.Claim) {
	return func(c *driver.Claim) { c.Lease = d }
}
func value(s string) func(*driver.Claim) { return func(c *driver.Claim) { c.Value = s } }
func yields(c *driver.Claim)             { c.Yield = true }
func first(c *driver.Claim)              { c.First = true }

func wait(c driver.Claim, expired ...string) driver.Edit {
	return driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: true, Expired: expired, NotAfter: never}}
}

func try(c driver.Claim) driver.Edit {
	return driver.Edit{Acquire: &driver.Acquire{Claim: c, NotAfter: never}}
}

func late(c driver.Claim) driver.Edit {
	return driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: start.Add(-1)}}
}

func release(id string, change ...func(*driver.Release)) driver.Edit {
	l := driver.Release{Claim: claim(id)}
	for _, f := range change {
		f(&l)
	}
	return driver.Edit{Release: &l}
}

func keep(d time.Duration) func(*driver.Release) { return func(l *driver.Release) { l.Keep = d } }
func to(claim string) func(*driver.Release)      { return func(l *driver.Release) { l.Successor = claim } }
func seal(n int64, result string) func(*driver.Release) {
	return func(l *driver.Release) { l.Seal, l.Result = n, []byte(result) }
}

func replace(old string, c driver.Claim) driver.Edit {
	e := wait(c)
	e.Release = release(old).Release
	return e
}

func extend(c driver.Claim) driver.Edit { return driver.Edit{Extend: &driver.Extend{Claim: c}} }

func publish(id string, seq int64, value string) driver.Edit {
	return driver.Edit{Publish: &driver.Publish{Claim: claim(id), Seq: seq, Value: []byte(value)}}
}

func resize(from, limit int64) driver.Edit {
	return driver.Edit{Resize: &driver.Resize{Key: "k", Kind: driver.KindSemaphore, From: from, Limit: limit}}
}

func forget(token int64) driver.Edit {
	return driver.Edit{Forget: &driver.Forget{Key: "k", Token: token}}
}

// done describes the result of an edit. If there is an error, it is the whole description. Otherwise the description
// lists the holders with the time until they end, a bar, the queue, the seal and the notices. An equals sign means that
// the record has not changed.
func done(r model.Record, did model.Effect, err error, now time.Time) string {
	for _, known := range []error{driver.ErrMismatch, driver.ErrNotHeld, driver.ErrNotWaiting, driver.ErrRefused} {
		if errors.Is(err, known) {
			return strings.TrimPrefix(known.Error(), "dsync: ")
		}
	}
	var parts []string
	for _, h := range r.Holders {
		p := h.Claim
		if !h.Until.IsZero() {
			p += fmt.Sprint(" for ", h.Until.Sub(now))
		}
		if h.Value != nil {
			p += fmt.Sprintf("=%s", h.Value)
		}
		parts = append(parts, p)
	}
	parts = append(parts, "|")
	for _, w := range r.Queue {
		parts = append(parts, w.Claim)
	}
	if r.Sealed > 0 {
		parts = append(parts, fmt.Sprintf("sealed to %d %s", r.Sealed, r.Result))
	}
	names := map[driver.NoticeType]string{driver.NoticeGrant: "grant", driver.NoticeWake: "wake", driver.NoticeYield: "yield"}
	for _, n := range did.Notices {
		if n.Type != driver.NoticeChange {
			p := names[n.Type] + " " + n.Claim
			if n.Crowded {
				p += " crowded"
			}
			parts = append(parts, "; "+p)
		}
	}
	if !did.Changed {
		parts = append(parts, "=")
	}
	return strings.ReplaceAll(strings.Join(parts, " "), " ;", ";")
}

func TestEdits(t *testing.T) {
	t0 := start.UnixMilli() * driver.TokenStep // the token of a grant by the first edit
	cases := []struct {
		name  string
		steps []step
	}{
		{"in order", []step{
			{wait(claim("a.1")), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1"}, {wait(claim("c.1")), "a.1 | b.1 c.1"},
			{wait(claim("b.1")), "a.1 | b.1 c.1 ="}, // repeated
			{wait(claim("a.1")), "a.1 | b.1 c.1 ="},
			{release("a.1"), "b.1 | c.1; grant b.1 crowded"}, {release("a.1"), "b.1 | c.1 ="},
			{release("c.1"), "b.1 |"}, {release("b.1"), "|"},
		}},
		{"a light claim does not overtake a heavy one", []step{
			{wait(claim("a.1", of(2, 3))), "a.1 |"}, {wait(claim("b.1", of(2, 3))), "a.1 | b.1"}, {wait(claim("c.1", of(1, 3))), "a.1 | b.1 c.1"},
			{release("a.1"), "b.1 c.1 |; grant b.1; grant c.1"},
		}},
		{"at the head", []step{
			{wait(claim("a.1")), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1"}, {wait(claim("c.1", first)), "a.1 | c.1 b.1"},
		}},
		{"earlier ticks first", []step{
			{wait(claim("a.1", tick(1))), "a.1 |"}, {wait(claim("d.1", tick(3))), "a.1 | d.1"}, {wait(claim("b.1", tick(2))), "a.1 | b.1 d.1"},
			{wait(claim("c.1", tick(2))), "a.1 | b.1 c.1 d.1"}, {wait(claim("e.1")), "a.1 | b.1 c.1 d.1 e.1"},
		}},
		{"a try", []step{
			{try(claim("a.1")), "a.1 |"}, {try(claim("b.1")), "a.1 | ="}, {wait(claim("c.1")), "a.1 | c.1"}, {try(claim("b.2")), "a.1 | c.1 ="},
		}},
		{"a late request", []step{{late(claim("a.1")), "| ="}}},
		{"expired sessions", []step{
			{wait(claim("a.1")), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1"}, {wait(claim("c.1")), "a.1 | b.1 c.1"},
			{wait(claim("d.1"), "a", "b"), "c.1 | d.1; grant c.1 crowded"},
		}},
		{"a hold with an end outlives its session", []step{
			{wait(claim("a.1")), "a.1 |"}, {release("a.1", keep(10*time.Second)), "a.1 for 10s |"},
			{wait(claim("b.1"), "a"), "a.1 for 9s | b.1"}, {release("a.1", keep(time.Minute)), "a.1 for 8s | b.1 ="},
			{release("a.1", keep(time.Second)), "a.1 for 1s | b.1; wake b.1"}, {wait(claim("c.1")), "b.1 | c.1; grant b.1 crowded"},
		}},
		{"a kept waiter leaves", []step{
			{wait(claim("a.1")), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1"}, {release("b.1", keep(time.Second)), "a.1 |"},
		}},
		{"kinds and limits", []step{
			{wait(claim("a.1", of(1, 2))), "a.1 |"}, {wait(claim("b.1", of(1, 3))), "key in use as another kind or size"},
			{wait(claim("b.1", of(1, 2), kind(driver.KindMutex))), "key in use as another kind or size"}, {release("a.1"), "|"},
			{wait(claim("b.1", kind(driver.KindMutex))), "b.1 |"},
		}},
		{"a new limit", []step{
			{wait(claim("a.1", of(1, 2))), "a.1 |"}, {wait(claim("b.1", of(2, 2))), "a.1 | b.1"}, {resize(2, 1), "refused by the store"},
			{resize(5, 3), "a.1 b.1 |; grant b.1"}, {resize(2, 3), "a.1 b.1 | ="},
			{wait(claim("c.1", of(1, 5))), "a.1 b.1 | c.1"}, {wait(claim("d.1", of(1, 4))), "key in use as another kind or size"},
			{wait(claim("d.1", of(4, 5))), "key in use as another kind or size"}, // heavier than the present limit
		}},
		{"a successor", []step{
			{wait(claim("a.1")), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1"}, {wait(claim("c.1")), "a.1 | b.1 c.1"},
			{release("a.1", to("x.1")), "not in the queue"}, {release("b.1", to("c.1")), "a.1 | b.1 c.1 ="},
			{release("a.1", to("c.1")), "c.1 | b.1; grant c.1 crowded"}, {release("a.1", to("b.1")), "c.1 | b.1 ="},
		}},
		{"a replacement", []step{
			{wait(claim("a.1")), "a.1 |"}, {replace("a.1", claim("a.2")), "a.2 |"}, {wait(claim("b.1")), "a.2 | b.1"},
			{replace("a.2", claim("a.3")), "b.1 | a.3; grant b.1 crowded"}, {replace("a.3", claim("a.4")), "b.1 | a.4"},
		}},
		{"a seal", []step{
			{wait(claim("a.1", tick(1))), "a.1 |"}, {wait(claim("b.1", tick(1))), "a.1 | b.1"}, {wait(claim("c.1", tick(2))), "a.1 | b.1 c.1"},
			{wait(claim("d.1", tick(3))), "a.1 | b.1 c.1 d.1"},
			{release("a.1", seal(1, "x")), "c.1 | d.1 sealed to 1 x; wake b.1; wake c.1"},
			{release("a.1", seal(2, "late")), "c.1 | d.1 sealed to 1 x ="}, {wait(claim("e.1", tick(1))), "c.1 | d.1 sealed to 1 x ="},
			{wait(claim("e.1", tick(1), kind(driver.KindOnce))), "key in use as another kind or size"},
			{release("c.1", seal(1, "y")), "d.1 | sealed to 1 x; grant d.1"}, {release("d.1"), "| sealed to 1 x"},
			{wait(claim("f.1")), "| sealed to 1 x ="}, {wait(claim("f.1", tick(2), of(1, 2))), "key in use as another kind or size"},
		}},
		{"a hold that has ended does not seal", []step{
			{wait(claim("a.1", tick(1))), "a.1 |"}, {release("a.1", keep(time.Second)), "a.1 for 1s |"}, {release("a.1", seal(1, "x")), "|"},
		}},
		{"a lease", []step{
			{wait(claim("a.1", lease(5*time.Second))), "a.1 |"}, {extend(claim("a.1", lease(5*time.Second))), "not held"},
			{extend(claim("a.1", lease(5*time.Second), token(t0))), "a.1 for 5s |"}, {extend(claim("a.1", lease(time.Second), token(t0))), "a.1 for 4s | ="},
			{extend(claim("a.1", lease(3*time.Second+1), token(t0))), "a.1 for 3.001s |"}, {extend(claim("b.1", lease(time.Second), token(t0))), "not held"},
			{extend(claim("a.1", token(t0))), "not held"}, {release("x.1"), "a.1 for 1ms | ="}, {extend(claim("a.1", lease(time.Hour), token(t0))), "not held"},
		}},
		{"a value", []step{
			{wait(claim("a.1", of(1, 2), value("v"))), "a.1=v |"}, {publish("a.1", 1, "w"), "a.1=w |"}, {publish("a.1", 1, "x"), "a.1=w | ="},
			{publish("a.1", 3, ""), "a.1= |"}, {publish("a.1", 2, "x"), "a.1= | ="}, {publish("b.1", 1, "x"), "not held"}, {release("a.1"), "|"},
		}},
		{"a holder that yields", []step{
			{wait(claim("a.1", yields)), "a.1 |"}, {wait(claim("b.1")), "a.1 | b.1; yield a.1"}, {wait(claim("c.1")), "a.1 | b.1 c.1"},
			{wait(claim("b.1")), "a.1 | b.1 c.1; yield a.1 ="},
		}},
		{"forgotten", []step{
			{wait(claim("a.1", tick(1))), "a.1 |"}, {forget(t0), "a.1 | ="}, {release("a.1", seal(1, "x")), "| sealed to 1 x"},
			{forget(t0 - 1), "| sealed to 1 x ="}, {forget(t0), "|"}, {forget(t0), "| ="},
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var r model.Record
			for i, s := range tc.steps {
				now := start.Add(time.Duration(i) * time.Second)
				before := fmt.Sprint(r)
				after, did, err := r.Clip().Edit(s.edit, now)
				if got := done(after, did, err, now); got != s.want {
					t.Fatalf("step %d: %s, want %s", i+1, got, s.want)
				}
				if got := fmt.Sprint(r); got != before {
					t.Fatalf("step %d: the record from before is now %s, was %s", i+1, got, before)
				}
				if changed := slices.ContainsFunc(did.Notices, func(n driver.Notice) bool { return n.Type == driver.NoticeChange }); changed != (did.Changed && s.edit.Extend == nil) {
					t.Errorf("step %d: observers are notified: %t, want %t", i+1, changed, !changed)
				}
				r = after
			}
		})
	}
}

// A token is greater than the last one, even if the last one was reserved or is ahead of the clock. No token is behind
// the clock.
func TestTokens(t *testing.T) {
	at := start.UnixMilli() * driver.TokenStep
	for _, tc := range []struct {
		name         string
		last         int64
		claim        driver.Claim
		token, after int64
	}{
		{"by the clock", 7, claim("a.1"), at, at},
		{"after a greater one", at + 5, claim("a.1"), at + 5 + driver.TokenStep, at + 5 + driver.TokenStep},
		{"with room", 7, claim("a.1", yields), at, at + driver.TokenRoom - driver.TokenStep},
		{"without room for a part", 7, claim("a.1", yields, of(1, 2)), at, at},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, did, err := model.Record{Token: tc.last}.Edit(wait(tc.claim), start)
			if err != nil || r.Holders[0].Token != tc.token || did.State.Token != tc.after {
				t.Errorf("token %d, then %d, %v; want %d, %d", r.Holders[0].Token, did.State.Token, err, tc.token, tc.after)
			}
		})
	}
}

// Only grants of an election count as terms.
func TestTerms(t *testing.T) {
	for k, want := range map[driver.Kind]int64{driver.KindElection: 4, driver.KindMutex: 0} {
		r, _, _ := model.Record{Kind: k, Limit: 1, Term: 3}.Edit(wait(claim("a.1", kind(k))), start)
		r, _, _ = r.Edit(wait(claim("b.1", kind(k))), start)
		if got := r.Holders[0].Term; got != want || r.State("k", "", start, 1).Term != want {
			t.Errorf("%s: term %d, %+v; want %d", k, got, r.State("k", "", start, 1), want)
		}
		_, did, _ := r.Edit(release("a.1"), start)
		if got := did.Notices[0].Term; want > 0 && got != want+1 || want == 0 && got != 0 {
			t.Errorf("%s: the notice has the term %d", k, got)
		}
	}
}

// A Release may be answered early only if it has no other options and nobody waits for the key.
func TestEarlyAnswers(t *testing.T) {
	held, _, _ := model.Record{}.Edit(wait(claim("a.1")), start)
	wanted, _, _ := held.Edit(wait(claim("b.1")), start)
	early := driver.Release{Claim: claim("a.1"), Early: true}
	for _, tc := range []struct {
		name   string
		r      model.Record
		change func(*driver.Release)
		want   bool
	}{
		{"alone", held, func(*driver.Release) {}, true},
		{"somebody waits", wanted, func(*driver.Release) {}, false},
		{"not held", held, func(l *driver.Release) { l.Claim.ID = "b.1" }, false},
		{"not asked for", held, func(l *driver.Release) { l.Early = false }, false},
		{"kept", held, keep(time.Second), false},
		{"sealed", held, seal(1, ""), false},
		{"to a successor", held, to("b.1"), false},
	} {
		l := early
		tc.change(&l)
		if got := tc.r.MayAnswerEarly(l); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// Discard leaves a hold that has an end.
func TestDiscard(t *testing.T) {
	held, _, _ := model.Record{}.Edit(wait(claim("a.1")), start)
	kept, _, _ := held.Edit(release("a.1", keep(time.Hour)), start)
	if r, did := held.Discard(claim("a.1"), start); !did.Changed || r.InUse() {
		t.Errorf("%+v, changed %t; want the claim gone", r, did.Changed)
	}
	if r, did := kept.Discard(claim("a.1"), start); did.Changed || !r.InUse() {
		t.Errorf("%+v, changed %t; want the hold kept", r, did.Changed)
	}
}
