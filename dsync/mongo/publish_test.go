package mongo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestPublishAnswers(t *testing.T) {
	c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindElection, Weight: 1, Limit: 1}
	cases := []struct {
		name  string
		claim string
		end   time.Duration // from now; 0: none
		size  int
		want  error
		sent  int
	}{
		{"held", "s.1", 0, 64 << 10, nil, 1},
		{"held for a while", "s.1", time.Minute, 0, nil, 1},
		{"over", "s.1", -time.Millisecond, 1, driver.ErrNotHeld, 1},
		{"over now", "s.1", time.Nanosecond, 1, driver.ErrNotHeld, 1},
		{"another's", "s.2", 0, 1, driver.ErrNotHeld, 1},
		{"too large", "s.1", 0, 64<<10 + 1, driver.ErrRefused, 0},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			now := time.Now().Add(365 * 24 * time.Hour) // the host's clock is a year behind
			f := newFake(t)
			s := f.store(nil, func(call) bson.D {
				h := bson.D{e("a", tc.claim), e("s", "s"), e("w", 1), e("t", 1024), e("at", now)}
				if tc.end != 0 {
					h = append(h, e("e", now.Add(tc.end).Truncate(time.Millisecond)))
				}
				return ok(e("value", bson.D{e("now", now), e("h", bson.A{h})}))
			})
			if _, err := storecmd.Publish(t.Context(), s, c, 1, make([]byte, tc.size)); !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if n := len(f.took()); n != tc.sent {
				t.Errorf("%d commands were sent, want %d", n, tc.sent)
			}
		})
	}
}

// A State has the value that a holder has published or, if the key is sealed, the result. It has a term only for an
// election.
func TestStateOfRecord(t *testing.T) {
	sealed := func(result string) bson.E {
		return e("done", bson.D{e("k", int64(512)), e("b", []byte(result))})
	}
	cases := []struct {
		name   string
		kind   driver.Kind
		fields []bson.E // further fields of the record
		holder []bson.E
		value  string // "nil" for none
		term   int64
		sealed bool
	}{
		{"nothing", driver.KindElection, nil, nil, "nil", 0, false},
		{"published", driver.KindElection, []bson.E{e("n", int64(7))}, []bson.E{e("v", int64(1)), e("b", []byte("x"))}, "x", 7, false},
		{"with the grant", driver.KindElection, []bson.E{e("n", int64(7))}, []bson.E{e("b", []byte("x"))}, "x", 7, false},
		{"empty", driver.KindElection, []bson.E{e("n", int64(1))}, []bson.E{e("v", int64(1)), e("b", []byte{})}, "", 1, false},
		{"another kind", driver.KindMutex, []bson.E{e("n", int64(7))}, []bson.E{e("v", int64(1)), e("b", []byte("x"))}, "x", 0, false},
		{"sealed", driver.KindOnce, []bson.E{sealed("y")}, nil, "y", 0, true},
		{"sealed with nothing", driver.KindOnce, []bson.E{sealed("")}, nil, "", 0, true},
		{"sealed and published", driver.KindOnce, []bson.E{sealed("y")}, []bson.E{e("v", int64(1)), e("b", []byte("x"))}, "y", 0, true},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			now := time.Now()
			holder := append(bson.D{e("a", "s.1"), e("s", "s"), e("w", 1), e("t", int64(2048)), e("n", int64(7)), e("at", now)}, tc.holder...)
			record := append(bson.D{e("now", now), e("y", string(tc.kind)), e("c", 1), e("t", int64(4096)), e("h", bson.A{holder})}, tc.fields...)
			s := newFake(t).store(nil, func(call) bson.D {
				return ok(e("cursor", bson.D{e("id", int64(0)), e("firstBatch", bson.A{bson.D{e("now", now), e("found", bson.A{record})}})}))
			})
			st, err := s.Load(t.Context(), "k", 1000)
			noErr(t, err)
			if got := string(st.Value); st.Value == nil && tc.value != "nil" || st.Value != nil && got != tc.value {
				t.Errorf("value %q, nil %t, want %q", got, st.Value == nil, tc.value)
			}
			if want := map[bool]int64{true: 512}[tc.sealed]; st.Sealed != want || st.Token != 4096 {
				t.Errorf("sealed up to %d with token %d, want %d with 4096", st.Sealed, st.Token, want)
			}
			if st.Term != tc.term {
				t.Errorf("term %d, want %d", st.Term, tc.term)
			}
		})
	}
}
