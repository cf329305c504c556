package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// break and forget print one object, which contains the key's status in the format of status
// --json.
func TestJSONOfBreakAndForget(t *testing.T) {
	type status struct {
		Key, Kind string
		Held      bool
		Sealed    bool
		Waiting   int
		Holders   []map[string]any
	}
	type answer struct {
		Key       string
		Took      *float64 `json:"took_ms"`
		Forgotten *bool
		Former    []struct{ Session, Host, Outcome, Since string }
		Status    status
	}
	for _, c := range []struct {
		name     string
		args     []string
		status   int
		check    func(answer) bool
		released bool
	}{
		{"released", []string{"break", "k"}, 0, func(a answer) bool {
			return a.Key == "k" && *a.Took > 0 && len(a.Former) == 1 && a.Former[0].Outcome == "released" && a.Former[0].Host == "here" &&
				a.Former[0].Since == "2000-01-01T00:00:00.000Z" && a.Status.Key == "k" && !a.Status.Held
		}, true},
		{"holds", []string{"break", "k", "--timeout", "1ms"}, exitTimeout, func(a answer) bool {
			return len(a.Former) == 1 && a.Former[0].Outcome == "holds" && a.Status.Held && len(a.Status.Holders) == 1
		}, false},
		{"expired", []string{"break", "dead"}, 0, func(a answer) bool {
			return len(a.Former) == 1 && a.Former[0].Session == "c" && a.Former[0].Outcome == "expired" && a.Status.Holders != nil
		}, false},
		{"free", []string{"break", "once"}, 0, func(a answer) bool {
			return *a.Took == 0 && a.Former != nil && len(a.Former) == 0 && a.Status.Sealed
		}, false},
		{"forgotten", []string{"forget", "once"}, 0, func(a answer) bool {
			return a.Key == "once" && *a.Forgotten && a.Status.Sealed && a.Status.Kind == "once"
		}, false},
		{"not there", []string{"forget", "x"}, 0, func(a answer) bool {
			return a.Key == "x" && !*a.Forgotten && a.Status.Kind == ""
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(t)
				holder, h := holding(t, s.Memory, "k")
				defer holder.Close(t.Context())
				s.acquire(claim("dead", "c.1", driver.KindMutex, 1, 1))
				s.release(s.acquire(claim("once", "a.1", driver.KindOnce, 1, 1)), driver.Release{Seal: 1})
				time.Sleep(time.Second)
				if c.released {
					go func() {
						<-h.Lost()
						time.Sleep(time.Millisecond)
						h.Release(t.Context())
					}()
				}
				got := command(t, s.Memory, slices.Concat(c.args, []string{"--json"})...)
				var a answer
				if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.status != c.status || !c.check(a) {
					t.Errorf("got %+v, %v, want status %d", got, err, c.status)
				}
			})
		})
	}
}
