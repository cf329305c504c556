package mongo_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// What the record says after the command decides what Acquire returns.
func TestAcquireAnswers(t *testing.T) {
	mine := dsync.Claim{Key: "k", ID: "s.1", Session: "s", Kind: dsync.KindMutex, Weight: 1, Limit: 1}
	holder := func(claim string) bson.E {
		return e("h", bson.A{bson.D{e("a", claim), e("s", "x"), e("w", 1), e("t", 1024), e("at", time.Now())}})
	}
	sealed := e("done", bson.D{e("t", 1024), e("b", []byte{})})
	in := func(kind dsync.Kind, limit int, more ...bson.E) bson.D {
		return append(bson.D{e("now", time.Now()), e("y", string(kind)), e("c", limit)}, more...)
	}
	cases := []struct {
		name   string
		record bson.D
		held   bool
		want   error
	}{
		{"held", in(dsync.KindMutex, 1, holder("s.1")), true, nil},
		{"in line", in(dsync.KindMutex, 1, holder("x.1"), e("place", 1), e("waiting", 1)), false, nil},
		{"held by another", in(dsync.KindMutex, 1, holder("x.1")), false, nil},
		{"late, on an idle key of another kind", in("semaphore", 5), false, nil},
		{"another kind", in("semaphore", 1, holder("x.1")), false, dsync.ErrMismatch},
		{"another limit", in(dsync.KindMutex, 2, holder("x.1")), false, dsync.ErrMismatch},
		{"another kind waits", in("semaphore", 1, e("waiting", 1)), false, dsync.ErrMismatch},
		{"a former limit", in(dsync.KindMutex, 2, holder("x.1"), e("p", bson.A{3, 1})), false, nil},
		{"a former limit of another kind", in("semaphore", 2, holder("x.1"), e("p", bson.A{3, 1})), false, dsync.ErrMismatch},
		{"too heavy for what was a former limit", in(dsync.KindMutex, 0, holder("x.1"), e("p", bson.A{1})), false, dsync.ErrMismatch},
		{"too heavy on a free key", in(dsync.KindMutex, 0, e("p", bson.A{1})), false, dsync.ErrMismatch},
		{"sealed", in(dsync.KindMutex, 1, sealed), false, nil},
		{"sealed with another limit", in(dsync.KindMutex, 2, holder("x.1"), sealed), false, nil},
		{"sealed as another kind", in(dsync.KindOnce, 1, sealed), false, dsync.ErrMismatch},
		{"in line with a limit that is forgotten", in(dsync.KindMutex, 9, holder("x.1"), e("place", 1), e("waiting", 1)), false, nil},
		{"line full", in(dsync.KindMutex, 1, holder("x.1"), e("waiting", 10_000)), false, dsync.ErrRefused},
		{"last in the fullest line", in(dsync.KindMutex, 1, holder("x.1"), e("waiting", 10_000), e("place", 10_000)), false, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t).store(nil, func(call) bson.D { return ok(e("value", tc.record)) })
				st, err := s.Acquire(t.Context(), mine, true, nil, time.Now())
				if !errors.Is(err, tc.want) {
					t.Errorf("got error %v, want %v", err, tc.want)
				}
				if _, held := st.Holder(mine.ID); held != tc.held {
					t.Errorf("held is %t, want %t", held, tc.held)
				}
			})
		})
	}
}

func TestExtendAnswers(t *testing.T) {
	c := dsync.Claim{Key: "k", ID: "s.1", Session: "s", Kind: dsync.KindMutex, Weight: 1, Limit: 1, Lease: time.Minute}
	cases := []struct {
		name  string
		claim string
		end   time.Duration // from now; 0: none
		want  error
	}{
		{"held", "s.1", time.Minute, nil},
		{"without an end", "s.1", 0, dsync.ErrNotHeld},
		{"over", "s.1", -time.Millisecond, dsync.ErrNotHeld},
		{"another's", "s.2", time.Minute, dsync.ErrNotHeld},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now().Add(365 * 24 * time.Hour) // the host's clock is a year behind
				s := newFake(t).store(nil, func(call) bson.D {
					h := bson.D{e("a", tc.claim), e("s", "s"), e("w", 1), e("t", 1024), e("at", now)}
					if tc.end != 0 {
						h = append(h, e("e", now.Add(tc.end)))
					}
					return ok(e("value", bson.D{e("now", now), e("h", bson.A{h})}))
				})
				h, err := s.Extend(t.Context(), c)
				if !errors.Is(err, tc.want) {
					t.Errorf("got error %v, want %v", err, tc.want)
				}
				if err == nil && (!h.Until.Equal(now.Add(tc.end)) || h.Token != 1024) {
					t.Errorf("got %+v, want the end %v and token 1024", h, now.Add(tc.end))
				}
			})
		})
	}
}

// What the record says after the command decides what Resize returns.
func TestResizeAnswers(t *testing.T) {
	cases := []struct {
		name  string
		kind  dsync.Kind // in the record
		limit int64      // in the record
		asked int64
		want  error
		sent  int
	}{
		{"done", dsync.KindSemaphore, 3, 3, nil, 1},
		{"another kind", dsync.KindMutex, 3, 3, dsync.ErrMismatch, 1},
		{"too heavy a claim in line", dsync.KindSemaphore, 5, 3, dsync.ErrRefused, 1},
		{"nothing", dsync.KindSemaphore, 0, 0, dsync.ErrRefused, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				s := f.store(nil, func(call) bson.D { return ok(e("value", bson.D{e("y", string(tc.kind)), e("c", tc.limit)})) })
				err := s.Resize(t.Context(), "k", dsync.KindSemaphore, 2, tc.asked)
				if !errors.Is(err, tc.want) {
					t.Errorf("got error %v, want %v", err, tc.want)
				}
				var m *dsync.MismatchError
				want := dsync.MismatchError{Key: "k", Kind: tc.kind, WantKind: dsync.KindSemaphore, Limit: tc.limit, WantLimit: tc.asked}
				if errors.As(err, &m) && *m != want {
					t.Errorf("got %+v, want %+v", *m, want)
				}
				if n := len(f.took()); n != tc.sent {
					t.Errorf("%d commands were sent, want %d", n, tc.sent)
				}
			})
		})
	}
}

// What could never be granted must not stand in line.
func TestAcquireRefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, null)
		for _, weight := range []int64{-1, 0, 4} {
			c := dsync.Claim{Key: "k", ID: "s.1", Session: "s", Kind: dsync.KindSemaphore, Weight: weight, Limit: 3}
			if _, err := s.Acquire(t.Context(), c, true, nil, time.Now()); !errors.Is(err, dsync.ErrRefused) {
				t.Errorf("weight %d: got %v, want ErrRefused", weight, err)
			}
		}
		if n := len(f.took()); n != 0 {
			t.Errorf("%d commands were sent, want none", n)
		}
	})
}
