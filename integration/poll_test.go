package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// The first command of a request marked as repeated can't join the queue. Even so, the request has the same effect as
// any other request.
func TestRepeatedRequestsDoTheSame(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, store := t.Context(), r.store()
		claim := func(key, session string) driver.Claim {
			return driver.Claim{Key: key, ID: session + ".1", Session: session, Kind: driver.KindSemaphore, Weight: 1, Limit: 1}
		}
		join := func(j driver.Acquire) driver.State {
			t.Helper()
			j.Wait, j.NotAfter = true, load(t, store, j.Claim.Key).Now.Add(time.Hour)
			done, err := store.Edit(ctx, driver.Edit{Acquire: &j})
			noErr(t, err)
			return done.State
		}
		acquire := func(c driver.Claim) driver.State {
			t.Helper()
			return join(driver.Acquire{Claim: c})
		}
		release := func(c driver.Claim, o driver.Release) {
			t.Helper()
			if found, _, err := storecmd.Release(ctx, store, c, o); err != nil || !found {
				t.Fatalf("release of %s: found %t, %v", c.ID, found, err)
			}
		}
		lease := 100 * time.Millisecond
		cases := []struct {
			name    string
			meet    func(key string)
			expired []string
			want    string
		}{
			{"never came", func(string) {}, nil, "held by mine.1"},
			{"never came to a key that is held", func(k string) { acquire(claim(k, "a")) }, nil, "held by a.1, 1 waiting, at 1"},
			{"holds", func(k string) { acquire(claim(k, "mine")) }, nil, "held by mine.1"},
			{"waits", func(k string) {
				for _, s := range []string{"a", "b", "mine", "c"} {
					acquire(claim(k, s))
				}
			}, nil, "held by a.1, 3 waiting, at 2, behind b.1"},
			{"waits behind the expired", func(k string) {
				for _, s := range []string{"a", "b", "mine", "c"} {
					acquire(claim(k, s))
				}
			}, []string{"a", "b"}, "held by mine.1, 1 waiting"},
			{"waits behind one that may hold only after the expired", func(k string) {
				for _, s := range []string{"a", "b", "mine"} {
					acquire(claim(k, s))
				}
			}, []string{"a"}, "held by b.1, 1 waiting, at 1"},
			{"waits behind an end that has come", func(k string) {
				acquire(claim(k, "a"))
				acquire(claim(k, "mine"))
				release(claim(k, "a"), driver.Release{Keep: lease})
				time.Sleep(3 * lease)
			}, nil, "held by mine.1"},
			{"its own end has come", func(k string) {
				c := claim(k, "mine")
				c.Lease, c.Token = lease, acquire(c).Token
				if _, err := storecmd.Extend(ctx, store, c, 1); err != nil {
					t.Fatal(err)
				}
				acquire(claim(k, "a"))
				time.Sleep(3 * lease)
			}, nil, "held by a.1, 1 waiting, at 1"},
			{"was released", func(k string) {
				acquire(claim(k, "mine"))
				acquire(claim(k, "a"))
				release(claim(k, "mine"), driver.Release{})
			}, nil, "held by a.1, 1 waiting, at 1"},
			{"of a key that was sealed", func(k string) {
				acquire(claim(k, "a"))
				acquire(claim(k, "mine"))
				release(claim(k, "a"), driver.Release{Seal: 1})
			}, nil, "sealed"},
		}
		for i, tc := range cases {
			for _, repeated := range []bool{false, true} {
				key := fmt.Sprint("poll ", i, repeated)
				tc.meet(key)
				if got := told(join(driver.Acquire{Claim: claim(key, "mine"), Expired: tc.expired, Repeated: repeated})); got != tc.want {
					t.Errorf("%s, repeated %t: got %q, want %q", tc.name, repeated, got, tc.want)
				}
			}
		}
	})
}

// told(st) formats the claims in a state for comparison.
func told(st driver.State) (text string) {
	if st.Sealed > 0 {
		return "sealed"
	}
	for _, h := range st.Holders {
		text += "held by " + h.Claim
	}
	if st.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", st.Waiting)
	}
	if st.Position > 0 {
		text += fmt.Sprintf(", at %d", st.Position)
		for _, w := range st.WaitersAhead {
			text += ", behind " + w.Claim
		}
	}
	return text
}
