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
				until, err := s.Extend(t.Context(), c)
				if !errors.Is(err, tc.want) {
					t.Errorf("got error %v, want %v", err, tc.want)
				}
				if err == nil && !until.Equal(now.Add(tc.end)) {
					t.Errorf("got %v, want %v", until, now.Add(tc.end))
				}
			})
		})
	}
}
