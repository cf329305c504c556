package clockcheck

import (
	"math"
	"time"
)

// An interval is where a quantity certainly is, both ends included.
type interval struct{ lo, hi time.Duration }

// and returns where a quantity is that is in both; they must meet.
func (i interval) and(j interval) interval { return interval{max(i.lo, j.lo), min(i.hi, j.hi)} }

// widen returns the interval d later, for a quantity that moved by at most that.
func (i interval) widen(d time.Duration) interval { return interval{i.lo - d, i.hi + d} }

// minus returns where the difference of two quantities is.
func (i interval) minus(j interval) interval { return interval{i.lo - j.hi, i.hi - j.lo} }

// to returns how far a quantity that was in i has moved at least, now that it is
// in j: zero if they meet.
func (i interval) to(j interval) time.Duration {
	switch {
	case j.lo > i.hi:
		return j.lo - i.hi
	case j.hi < i.lo:
		return j.hi - i.lo
	}
	return 0
}

// middle returns the interval as a value and a bound: middle ± bound holds all of
// it. The division rounds down, hence the bound is the longer half.
func (i interval) middle() (mid, bound time.Duration) {
	mid = i.lo + (i.hi-i.lo)/2
	return mid, i.hi - mid
}

// drift is how far two clocks move apart in d, at most.
func drift(rate float64, d time.Duration) time.Duration {
	return time.Duration(math.Ceil(rate * float64(d)))
}
