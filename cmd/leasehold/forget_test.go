package main

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// forget prints what it has forgotten, and refuses to forget a key that is held.
func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t)
		s.release(s.acquire(claim("done", "a.1", driver.KindOnce, 1, 1)), driver.Release{Seal: 1})
		s.release(s.acquire(claim("elected", "a.2", driver.KindElection, 1, 1)), driver.Release{})
		s.release(s.acquire(claim("nightly", "a.4", driver.KindPeriodic, 1, 1)), driver.Release{Seal: 1_793_498_400_000})
		s.acquire(claim("held", "a.3", driver.KindMutex, 1, 1))
		if got := command(t, s.Memory, "break", "done"); got.status != 0 ||
			got.out != "done: nobody holds it: it is a once that is done; after leasehold forget it can run again\n" {
			t.Errorf("break of a once: %+v", got)
		}
		for _, c := range []struct{ key, out string }{
			{"done", "done: forgotten, a once that had been done\n"},
			{"done", "done: forgotten\n"},
			{"elected", "elected: forgotten, an election in term 1\n"},
			{"nightly", "nightly: forgotten, a periodic whose last tick was 2026-11-01T02:00:00.000Z\n"},
			{"other", "other: no such key\n"},
		} {
			if got := command(t, s.Memory, "forget", c.key); got.status != 0 || got.out != c.out || got.err != "" {
				t.Errorf("forget of %s: %+v, want %q", c.key, got, c.out)
			}
		}
		got := command(t, s.Memory, "forget", "held")
		if got.status != exitHeld || got.out != "" || !strings.HasPrefix(got.err, `leasehold: dsync: "held" is held by another`) {
			t.Errorf("forget of a held key: %+v, want status %d and an error that says that the key is held", got, exitHeld)
		}
	})
}
