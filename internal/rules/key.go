package rules

import (
	"fmt"
	"slices"
	"time"
)

// Check returns the violations in all holds of one key, sorted by the times of their grants.
// k has the settings and no grants yet.
func Check(holds []*Hold, k Key) []Violation {
	var found []Violation
	for _, o := range holds {
		found = append(found, k.Grant(o)...)
	}
	return found
}

// A Key checks the grants of one key, one after the other. Set its Grace before the first.
type Key struct {
	Grace  time.Duration   // of all sessions
	Breaks []time.Duration // when calls began that break the key, and when they returned
	Skew   time.Duration   // between the clocks by which the store judges ends

	granted []*Hold
}

// Grant returns the rules that the grant of o breaks. It reads the holds of earlier grants
// again: their fields must say by then what is known of the time until o was granted.
func (k *Key) Grant(o *Hold) []Violation {
	var found []Violation
	fail := func(rule, format string, args ...any) {
		found = append(found, Violation{Rule: rule, Key: o.Key, At: o.Granted, Text: fmt.Sprintf(format, args...)})
	}
	certain, all := o.Weight, o.Weight
	var others []*Hold // those that the store may not have given to others yet
	var same *Hold     // one with o's token
	var newest *Hold   // of those that were certainly granted before o, the one with the greatest token
	for _, b := range k.granted {
		if b.Free(k.Grace) > o.Granted {
			others = append(others, b)
			weight := b.Weight
			if b.Shared != o.Shared {
				weight = o.Limit // readers exclude all but readers
			}
			all += weight
			if b.Certain() >= o.Granted {
				certain += weight
			}
		}
		if b.Freed() && k.keeps(b, o.Granted) {
			fail("kept", "%v was granted, and %v has kept it for %v", o, b, b.Keep)
		}
		if b.Token == o.Token && !(b.Shared && o.Shared && b.Process == o.Process) {
			same = b
		}
		// Of two that exclude each other, the one whose call returned first was granted first.
		ordered := b.Exclusive() || o.Exclusive() || b.Granted < o.Requested && !(b.Shared && o.Shared)
		if ordered && (newest == nil || b.Token > newest.Token) {
			newest = b
		}
	}
	switch {
	case certain > o.Limit:
		fail("overlap", "%v was granted, and together %d of %d are held: %v", o, certain, o.Limit, others)
	case all > o.Limit:
		fail("grace", "%v was granted, and together %d of %d are held or in their grace of %v: %v", o, all, o.Limit, k.Grace, others)
	}
	switch {
	case o.Token == 0: // it is not known
	case same != nil:
		fail("token", "%v has the token of %v", o, same)
	case newest != nil && newest.Token > o.Token:
		fail("token", "%v has a smaller token than %v, which was granted before", o, newest)
	}
	k.granted = append(k.granted, o)
	return found
}

// keeps reports whether b still keeps the key at a time, and no Break may have ended that.
func (k *Key) keeps(b *Hold, at time.Duration) bool {
	until := b.Done + b.Keep - k.Skew - 2*time.Millisecond // the store counts whole ones
	late := b.Done - 30*k.Grace                            // a session may learn that late of a Break of its claim
	return b.Done < at && at < until &&
		!slices.ContainsFunc(k.Breaks, func(t time.Duration) bool { return late < t && t <= at })
}

// A Violation is what breaks a rule.
type Violation struct {
	Rule string
	Key  string
	At   time.Duration
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: key %q, at %s: %s", v.Rule, v.Key, at(v.At), v.Text)
}

// at shows a time in seconds.
func at(t time.Duration) string { return fmt.Sprintf("%.3f s", t.Seconds()) }
