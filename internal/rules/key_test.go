package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

const (
	ms    = time.Millisecond
	grace = 300 * ms
)

// lock returns an exclusive hold that was requested at the given time, granted 10 ms later and unlocked after 500
// ms.
func lock(at time.Duration, token int64) *rules.Hold { return part(at, token, 1, 1) }

func part(at time.Duration, token, weight, limit int64) *rules.Hold {
	return &rules.Hold{
		Requested: at, Granted: at + 10*ms, Live: at + 490*ms, Done: at + 500*ms, Released: at + 510*ms,
		Token: token, Weight: weight, Limit: limit,
	}
}

func read(process string, at time.Duration, token int64) *rules.Hold {
	h := part(at, token, 1, 9)
	h.Process, h.Shared = process, true
	return h
}

// lost makes h a hold that was lost after the last check, unnoticed by its holder.
func lost(h *rules.Hold) *rules.Hold {
	h.Err, h.Done, h.Released = "lost", 0, 0
	return h
}

func kept(h *rules.Hold) *rules.Hold {
	h.Keep = time.Second
	return h
}

func requested(at time.Duration, h *rules.Hold) *rules.Hold {
	h.Requested = at
	return h
}

func TestCheck(t *testing.T) {
	done := lost(lock(0, 1))
	done.Done = 520 * ms
	released := kept(lock(0, 1))
	released.Err = "lost"
	for _, c := range []struct {
		name   string
		breaks []time.Duration
		want   string // "" for none
		holds  []*rules.Hold
	}{
		{"one after the other", nil, "", []*rules.Hold{lock(0, 1), lock(500*ms, 2)}},
		{"two at once", nil, "overlap", []*rules.Hold{lock(0, 1), lock(200*ms, 2)}},
		{"two at once after the last check", nil, "overlap", []*rules.Hold{lock(0, 1), lock(485*ms, 2)}},
		{"lost, two at once", nil, "overlap", []*rules.Hold{lost(lock(0, 1)), lock(480*ms, 2)}},
		{"in the grace", nil, "grace", []*rules.Hold{lost(lock(0, 1)), lock(770*ms, 2)}},
		{"after the grace", nil, "", []*rules.Hold{lost(lock(0, 1)), lock(780*ms, 2)}},
		{"the holder said that it was done", nil, "", []*rules.Hold{done, lock(510*ms, 2)}},
		{"parts that fit", nil, "", []*rules.Hold{part(0, 1, 2, 3), part(100*ms, 2, 1, 3)}},
		{"parts that do not fit", nil, "overlap", []*rules.Hold{part(0, 1, 2, 3), part(100*ms, 2, 2, 3)}},
		{"readers", nil, "", []*rules.Hold{read("a", 0, 1), read("a", 100*ms, 1), read("b", 200*ms, 2)}},
		{"a reader and a writer", nil, "overlap", []*rules.Hold{read("a", 0, 1), part(100*ms, 2, 9, 9)}},
		{"a reader and a part", nil, "overlap", []*rules.Hold{read("a", 0, 1), part(100*ms, 2, 1, 3)}},

		{"a token twice", nil, "token", []*rules.Hold{lock(0, 1), lock(time.Second, 1)}},
		{"readers of two processes with a token", nil, "token", []*rules.Hold{read("a", 0, 1), read("b", 100*ms, 1)}},
		{"a smaller token", nil, "token", []*rules.Hold{lock(0, 3), part(time.Second, 2, 1, 3)}},
		{"not the greatest token", nil, "token", []*rules.Hold{lock(0, 1), lock(time.Second, 3), lock(2*time.Second, 2)}},
		{"a smaller token, and both waited", nil, "token", []*rules.Hold{requested(0, lock(100*ms, 3)), requested(0, lock(time.Second, 2))}},
		{"a reader's smaller than a writer's", nil, "token", []*rules.Hold{part(0, 3, 9, 9), requested(0, read("a", time.Second, 2))}},
		{"a writer's smaller than a reader's", nil, "token", []*rules.Hold{read("a", 0, 3), requested(0, part(time.Second, 2, 9, 9))}},
		{"a reader's smaller than a reader's", nil, "", []*rules.Hold{read("a", 0, 3), read("b", time.Second, 2)}},
		{"a reader's smaller than a part's", nil, "token", []*rules.Hold{part(0, 3, 1, 3), read("a", time.Second, 2)}},
		{"a part's smaller", nil, "token", []*rules.Hold{part(0, 4, 1, 3), part(100*ms, 5, 1, 3), part(200*ms, 3, 1, 3)}},
		{"a part's smaller, and both waited", nil, "", []*rules.Hold{part(0, 3, 1, 3), requested(0, part(100*ms, 2, 1, 3))}},
		{"over before its token was read", nil, "", []*rules.Hold{lock(0, 3), lock(time.Second, 0)}},

		{"kept", nil, "kept", []*rules.Hold{kept(lock(0, 1)), lock(1487*ms, 2)}},
		{"no longer kept", nil, "", []*rules.Hold{kept(lock(0, 1)), lock(1488*ms, 2)}},
		{"kept and broken", []time.Duration{time.Second}, "", []*rules.Hold{kept(lock(0, 1)), lock(1100*ms, 2)}},
		{"kept and broken later", []time.Duration{1300 * ms}, "kept", []*rules.Hold{kept(lock(0, 1)), lock(1100*ms, 2)}},
		{"kept and broken before", []time.Duration{2 * time.Second}, "", []*rules.Hold{kept(lock(10*time.Second, 1)), lock(11*time.Second, 2)}},
		{"kept and broken long before", []time.Duration{1400 * ms}, "kept", []*rules.Hold{kept(lock(10*time.Second, 1)), lock(11*time.Second, 2)}},
		{"lost and not kept", nil, "", []*rules.Hold{released, lock(600*ms, 2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, want []string
			for _, v := range rules.Check(c.holds, rules.Key{Grace: grace, Breaks: c.breaks}) {
				t.Log(v)
				got = append(got, v.Rule)
			}
			if c.want != "" {
				want = []string{c.want}
			}
			if !slices.Equal(got, want) {
				t.Errorf("rules %q are broken, want %q", got, want)
			}
		})
	}
}

// A kept key may become free a little early if another server's clock decides when it becomes free.
func TestSkew(t *testing.T) {
	kept := &rules.Hold{Key: "k", Process: "a", ID: 1, Weight: 1, Limit: 1, Granted: 1, Live: 2, Done: 2, Released: 3, Keep: time.Second, Token: 1}
	for _, c := range []struct {
		early time.Duration
		want  int
	}{{45 * ms, 0}, {60 * ms, 1}} {
		next := &rules.Hold{Key: "k", Process: "b", ID: 2, Weight: 1, Limit: 1, Granted: kept.Done + kept.Keep - c.early, Token: 2}
		if got := rules.Check([]*rules.Hold{kept, next}, rules.Key{Skew: 50 * ms}); len(got) != c.want {
			t.Errorf("granted %v early: %v, want %d violations", c.early, got, c.want)
		}
	}
}
