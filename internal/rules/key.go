package rules

import (
	"fmt"
	"slices"
	"time"
)

// Check returns the violations that it finds in the holds of one key. The holds must be in the order of their grants. k
// has the settings and no grants yet.
func Check(holds []*Hold, k Key) []Violation {
	var found []Violation
	for _, o := range holds {
		found = append(found, k.Grant(o)...)
	}
	return found
}

// A Key checks the grants of one key, one after the other. Set its Grace before the first grant.
type Key struct {
	Grace  time.Duration   // of all sessions
	Breaks []time.Duration // when each call that breaks the key began and returned
	Skew   time.Duration   // greatest difference between the clocks that the store reads

	granted []*Hold
}

// Grant returns the rules that the grant of o breaks. It also reads the holds of earlier grants, so their fields must
// be up to date as of the grant of o.
func (k *Key) Grant(o *Hold) []Violation {
	var found []Violation
	fail := func(rule, format string, args ...any) {
		found = append(found, Violation{Rule: rule, Key: o.Key, At: o.Granted, Text: fmt.Sprintf(format, args...)})
	}
	certain, all := o.Weight, o.Weight
	var others []*Hold // holds that may still occupy their part of the key in the store
	var same *Hold     // a hold with o's token
	var newest *Hold   // the hold with the greatest token, among those certainly granted before o
	for _, b := range k.granted {
		if b.Free(k.Grace) > o.Granted {
			others = append(others, b)
			weight := b.Weight
			if b.Shared != o.Shared {
				weight = o.Limit // readers exclude everybody except readers
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
		// If two holds exclude each other, the hold whose call returned first was granted first.
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
	case o.Token == 0: // the token is not known
	case same != nil:
		fail("token", "%v has the token of %v", o, same)
	case newest != nil && newest.Token > o.Token:
		fail("token", "%v has a smaller token than %v, which was granted before", o, newest)
	}
	k.granted = append(k.granted, o)
	return found
}

// keeps reports whether the store must still keep the key for b at the given time. This is so while b's Keep is not
// over, unless a Break may have ended it.
func (k *Key) keeps(b *Hold, at time.Duration) bool {
	until := b.Done + b.Keep - k.Skew - 2*time.Millisecond // the store counts in whole milliseconds
	late := b.Done - 30*k.Grace                            // a session may take that long to learn that its claim was broken
	return b.Done < at && at < until &&
		!slices.ContainsFunc(k.Breaks, func(t time.Duration) bool { return late < t && t <= at })
}

// A Violation is a rule that was broken.
type Violation struct {
	Rule string
	Key  string
	At   time.Duration
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: key %q, at %s: %s", v.Rule, v.Key, at(v.At), v.Text)
}

// at formats a time in seconds.
func at(t time.Duration) string { return fmt.Sprintf("%.3f s", t.Seconds()) }
