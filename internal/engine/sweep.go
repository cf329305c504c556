package engine

import (
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	// sweepPause is the longest wait of a sweeper between two slices, and the mean time
	// until a new session checks whether anybody sweeps. If the retention is less than about
	// half an hour both are shorter: see longest.
	sweepPause = time.Minute

	// sweepBrisk is the longest pause while the size of the store is not known.
	sweepBrisk = time.Second

	// sweepGap is the shortest pause. A sweeper also waits at least four times as long as
	// the last slice took, so that sweeping takes at most a fifth of a slow server's time.
	sweepGap = 100 * time.Millisecond

	// sweepSlack is how late a slice may be before other sessions conclude that the sweeper
	// has ended.
	sweepSlack = 10 * time.Second
)

// A sweeper decides when its session sweeps the store.
//
// One session sweeps for the whole fleet, slice after slice. The others see that in the store's
// [driver.SweepState] and check less and less often. When the sweeper has ended, the next session
// that checks continues where it stopped. So a fleet that has nothing to sweep sends about one
// Sweep a minute, however many processes it has, and no record is missed because processes come
// and go.
//
// A session first checks after an exponentially distributed time with a mean of a minute. So most
// processes that live for seconds send nothing. Yet 300 of them in succession check as often as
// one process that lives as long as all of them together. The alternatives are worse. Sweeping in
// Close makes Close slower. Sweeping after a number of commands makes one Lock slower. Sweeping
// with the first heartbeat is too late for a cron job, which ends before it.
type sweeper struct {
	session   string
	retention time.Duration
	last      driver.SweepState // the store's last answer
	away      time.Duration     // mean time until the next check while another session sweeps
}

// first returns how long to wait before the first check.
func (w *sweeper) first() time.Duration {
	return time.Duration(rand.ExpFloat64() * float64(longest(w.retention)))
}

// longest returns the longest pause between two slices. One process takes over from another within
// a few such pauses, so they must be short compared with the retention.
func longest(retention time.Duration) time.Duration { return min(sweepPause, retention/32) }

// next returns how long to wait before the next Sweep, given the answer to the last one and the
// time that it took.
func (w *sweeper) next(a answer[driver.SweepState], took time.Duration) time.Duration {
	if a.err != nil {
		return w.stayAway()
	}
	before := w.last.Turn
	w.last = a.v
	pause := pauseAfter(a.v, w.retention)
	switch {
	case a.v.Turn > 0 && a.v.By == w.session:
		w.away = 0
		return max(jitter(pause, 0.1), 4*took)
	case a.v.Turn == before:
		// If a store neither sweeps nor says who does, do not ask it often.
	case a.v.Turn == 0, a.v.Now.Sub(a.v.At) > 2*pause+sweepSlack:
		return jitter(sweepGap, 0.5)
	}
	return w.stayAway()
}

// stayAway returns how long to wait before checking again whether the sweeper still runs. The mean
// doubles up to an eighth of the retention. Records may stay that much longer if the sweeper ends
// and no new session starts.
func (w *sweeper) stayAway() time.Duration {
	w.away = max(longest(w.retention), min(2*w.away, w.retention/8))
	return jitter(w.away, 0.5)
}

// pauseAfter returns how long the sweeper may wait after the last slice.
//
// Idle records can be anywhere, because keys can have any names. To find them in time, a whole
// round must take no longer than a quarter of the retention. Then the store has at most a quarter
// more records than the retention asks for, and each record is examined about five times in its
// life. The number that the last slice deleted would be a poor measure by itself. Keys with
// ascending names leave long stretches without an idle record, and at one slice a minute a store
// that grows faster than that would never get past them. But many deletions mean that there is a
// backlog, so then the sweeper does not wait.
func pauseAfter(st driver.SweepState, retention time.Duration) time.Duration {
	most := longest(retention)
	if st.After != "" {
		if st.Deleted > 0 && 4*st.Deleted >= st.Seen {
			return sweepGap
		}
		if st.LastRound == 0 {
			most = min(most, sweepBrisk)
		}
	}
	size := max(st.Round, st.LastRound, st.Seen)
	if size == 0 {
		return most
	}
	share := float64(st.Seen) / float64(size)
	return min(most, max(sweepGap, time.Duration(share*float64(retention/4))))
}
