package mongo_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The record in the reply decides what Acquire returns.
func TestAcquireAnswers(t *testing.T) {
	mine := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1}
	holder := func(claim string) bson.E {
		return e("h", bson.A{bson.D{e("a", claim), e("s", "x"), e("w", 1), e("t", 1024), e("at", time.Now())}})
	}
	sealed := e("done", bson.D{e("k", 1024), e("b", []byte{})})
	in := func(kind driver.Kind, limit int, more ...bson.E) bson.D {
		return append(bson.D{e("now", time.Now()), e("y", string(kind)), e("c", limit)}, more...)
	}
	cases := []struct {
		name   string
		record bson.D
		held   bool
		want   error
	}{
		{"held", in(driver.KindMutex, 1, holder("s.1")), true, nil},
		{"in the queue", in(driver.KindMutex, 1, holder("x.1"), e("position", 1), e("waiting", 1)), false, nil},
		{"held by another", in(driver.KindMutex, 1, holder("x.1")), false, nil},
		{"late, on an idle key of another kind", in("semaphore", 5), false, nil},
		{"another kind", in("semaphore", 1, holder("x.1")), false, driver.ErrMismatch},
		{"another limit", in(driver.KindMutex, 2, holder("x.1")), false, driver.ErrMismatch},
		{"another kind waits", in("semaphore", 1, e("waiting", 1)), false, driver.ErrMismatch},
		{"a former limit", in(driver.KindMutex, 2, holder("x.1"), e("p", bson.A{3, 1})), false, nil},
		{"a former limit of another kind", in("semaphore", 2, holder("x.1"), e("p", bson.A{3, 1})), false, driver.ErrMismatch},
		{"too heavy for what was a former limit", in(driver.KindMutex, 0, holder("x.1"), e("p", bson.A{1})), false, driver.ErrMismatch},
		{"too heavy on a free key", in(driver.KindMutex, 0, e("p", bson.A{1})), false, driver.ErrMismatch},
		{"sealed", in(driver.KindMutex, 1, sealed), false, nil},
		{"sealed with another limit", in(driver.KindMutex, 2, holder("x.1"), sealed), false, nil},
		{"sealed as another kind", in(driver.KindOnce, 1, sealed), false, driver.ErrMismatch},
		{"in the queue with a limit that is forgotten", in(driver.KindMutex, 9, holder("x.1"), e("position", 1), e("waiting", 1)), false, nil},
		{"queue full", in(driver.KindMutex, 1, holder("x.1"), e("waiting", 10_000)), false, driver.ErrRefused},
		{"last in a full queue", in(driver.KindMutex, 1, holder("x.1"), e("waiting", 10_000), e("position", 10_000)), false, nil},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			s := newFake(t).store(nil, func(call) bson.D { return ok(e("n", 0), e("value", tc.record)) })
			st, _, err := storecmd.Acquire(t.Context(), s, mine, true, nil, time.Now())
			if !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if _, held := st.Holder(mine.ID); held != tc.held {
				t.Errorf("the claim holds: %t, want %t", held, tc.held)
			}
		})
	}
}

func TestExtendAnswers(t *testing.T) {
	c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1, Lease: time.Minute, Token: 1024}
	cases := []struct {
		name  string
		claim string
		token int64
		end   time.Duration // from now; 0: none
		want  error
	}{
		{"held", "s.1", 1024, time.Minute, nil},
		{"without an end", "s.1", 1024, 0, driver.ErrNotHeld},
		{"over", "s.1", 1024, -time.Millisecond, driver.ErrNotHeld},
		{"another's", "s.2", 1024, time.Minute, driver.ErrNotHeld},
		{"another grant", "s.1", 2048, time.Minute, driver.ErrNotHeld},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			now := time.Now().Add(365 * 24 * time.Hour) // the host's clock is a year behind
			s := newFake(t).store(nil, func(call) bson.D {
				h := bson.D{e("a", tc.claim), e("s", "s"), e("w", 1), e("t", tc.token), e("at", now)}
				if tc.end != 0 {
					h = append(h, e("e", now.Add(tc.end)))
				}
				return ok(e("value", bson.D{e("now", now), e("h", bson.A{h})}))
			})
			h, err := storecmd.Extend(t.Context(), s, c, 1)
			if !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if err == nil && (!h.Until.Equal(now.Add(tc.end)) || h.Token != 1024) {
				t.Errorf("got %+v, want the end %v and token 1024", h, now.Add(tc.end))
			}
		})
	}
}

// The record in the reply decides what Resize returns.
func TestResizeAnswers(t *testing.T) {
	cases := []struct {
		name  string
		kind  driver.Kind // in the record
		limit int64       // in the record
		asked int64
		want  error
		sent  int
	}{
		{"done", driver.KindSemaphore, 3, 3, nil, 1},
		{"another kind", driver.KindMutex, 3, 3, driver.ErrMismatch, 1},
		{"too heavy a claim in the queue", driver.KindSemaphore, 5, 3, driver.ErrRefused, 1},
		{"nothing", driver.KindSemaphore, 0, 0, driver.ErrRefused, 0},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, func(call) bson.D { return ok(e("value", bson.D{e("y", string(tc.kind)), e("c", tc.limit)})) })
			_, err := storecmd.Resize(t.Context(), s, "k", driver.KindSemaphore, 2, tc.asked)
			if !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			var m *driver.MismatchError
			want := driver.MismatchError{Key: "k", Kind: tc.kind, WantKind: driver.KindSemaphore, Limit: tc.limit, WantLimit: tc.asked}
			if errors.As(err, &m) && *m != want {
				t.Errorf("got %+v, want %+v", *m, want)
			}
			if n := len(f.took()); n != tc.sent {
				t.Errorf("%d commands were sent, want %d", n, tc.sent)
			}
		})
	}
}

// A claim whose weight is not from 1 to its limit must not join the queue.
func TestAcquireRefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, null)
		for _, weight := range []int64{-1, 0, 4} {
			c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindSemaphore, Weight: weight, Limit: 3}
			if _, _, err := storecmd.Acquire(t.Context(), s, c, true, nil, time.Now()); !errors.Is(err, driver.ErrRefused) {
				t.Errorf("weight %d: got %v, want ErrRefused", weight, err)
			}
		}
		if n := len(f.took()); n != 0 {
			t.Errorf("%d commands were sent, want none", n)
		}
	})
}

// A repeated Acquire of a claim that may wait first sends a poll, which never adds the claim to the queue. If the claim
// is not in the record, the Acquire then sends a command that adds it. A run's claim is not polled, because its tick is
// usually over by then.
func TestRepeatedRequestOfWhatIsGone(t *testing.T) {
	now := time.Now()
	there := ok(e("value", bson.D{e("now", now), e("position", 1), e("waiting", 1)}))
	removed := ok(e("value", bson.D{e("now", now), e("waiting", 1), e("h", bson.A{
		bson.D{e("a", "o.1"), e("s", "o"), e("w", 1), e("t", int64(1024)), e("at", now), e("p", 3)},
	})}))
	for name, tc := range map[string]struct {
		first bson.D
		wait  bool
		kind  driver.Kind // if it is set, the claim has a tick
		want  int         // number of commands
	}{
		"there":               {there, true, "", 1},
		"no record has it":    {null(call{}), true, "", 2},
		"the poll removed it": {removed, true, "", 2},
		"a try":               {there, false, "", 1},
		"a candidate":         {there, true, driver.KindElection, 1},
		"a run":               {there, true, driver.KindPeriodic, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, nil)
			f.script(func(call) bson.D {
				if len(f.took()) == 1 {
					return tc.first
				}
				return there
			})
			c := mutexClaim(1)
			if tc.kind != "" {
				c.Kind, c.Tick = tc.kind, 7
			}
			done, err := s.Edit(t.Context(), driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: tc.wait, NotAfter: time.Now(), Repeated: true}})
			if granted := strings.HasPrefix(name, "the poll removed"); granted != (len(done.Notices) == 1) {
				t.Errorf("got the notices %v, want one if the poll granted another's claim, otherwise none", done.Notices)
			}
			if err != nil || done.State.Position != 1 {
				t.Errorf("got position %d, %v, want 1", done.State.Position, err)
			}
			sent := f.took()
			if len(sent) != tc.want {
				t.Errorf("sent %d commands, want %d", len(sent), tc.want)
			}
			last := sent[len(sent)-1].cmd.Lookup("update", "0", "$set", "_", "$literal", "claim").IsZero()
			if poll := tc.wait && tc.want == 1 && tc.kind != driver.KindPeriodic; last != poll {
				t.Errorf("the last command is a poll, without a claim: %t, want %t", last, poll)
			}
		})
	}
}

// A Release with a Successor is one command, whose filter matches only if the claim holds the key. The reply still
// contains the claim if and only if the successor did not wait.
func TestReleaseToASuccessor(t *testing.T) {
	c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindElection, Weight: 1, Limit: 1, Token: 1024, NoneWaiting: true}
	holder := func(claim string) bson.D {
		return bson.D{e("a", claim), e("s", claim[:1]), e("w", 1), e("t", int64(2048)), e("at", time.Now()), e("p", int64(5))}
	}
	held := func(claim string) bson.D {
		return ok(e("value", bson.D{e("now", time.Now()), e("at", time.Now()), e("h", bson.A{holder(claim)})}))
	}
	for _, tc := range []struct {
		name    string
		reply   func() bson.D
		found   bool
		notices int
		err     error
	}{
		{"granted", func() bson.D { return held("b.1") }, true, 1, nil},
		{"not waiting", func() bson.D { return held("s.1") }, false, 0, driver.ErrNotWaiting},
		{"not held", func() bson.D { return ok(e("value", nil)) }, false, 0, nil},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, func(call) bson.D { return tc.reply() })
			f.took()
			found, notices, err := storecmd.Release(t.Context(), s, c, driver.Release{Successor: "b.1"})
			if found != tc.found || len(notices) != tc.notices || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("Release = %t, %+v, %v; want %t, %d notices, %v", found, notices, err, tc.found, tc.notices, tc.err)
			}
			sent := f.took()
			if len(sent) != 1 {
				t.Fatalf("%d commands were sent, want 1: %v", len(sent), sent)
			}
			if got, _ := sent[0].cmd.Lookup("query", "h.a").StringValueOK(); got != c.ID {
				t.Errorf("the command is %v, want its filter to ask for the holder %s", sent[0].cmd, c.ID)
			}
		})
	}
}
