package dsync

import (
	"math/rand/v2"
	"time"
)

const (
	// sweepPause is the longest that a sweeper waits between two slices, and the
	// mean time until a new session looks whether anybody sweeps. With a retention of
	// less than half an hour it is shorter: see longest.
	sweepPause = time.Minute

	// sweepBrisk is the longest pause while the size of the store is not known.
	sweepBrisk = time.Second

	// sweepGap is the shortest pause. A sweeper also waits four times as long as the
	// last slice took, so that a slow server is busy with it for a fifth of the time
	// at most.
	sweepGap = 100 * time.Millisecond

	// sweepSlack is how much later than planned a slice may come before others
	// conclude that the sweeper is gone.
	sweepSlack = 10 * time.Second
)

// A sweeper decides when its session sweeps the store.
//
// One session sweeps for the whole fleet, slice after slice. All others see in the
// store's [SweepState] that it does, and stay away for longer and longer. When it is
// gone, whoever looks next goes on where it stopped. So a fleet that has nothing to
// sweep sends about one Sweep a minute, however many processes it has, and nothing is
// passed over because processes come and go.
//
// A session looks for the first time after a random time without memory, a minute in
// the mean. So a process that lives for seconds mostly sends nothing, and yet 300 of
// them, one after the other, look as often as one process that lives as long as they
// do together. The alternatives are worse: to sweep in Close makes Close slower;
// after a number of commands makes one Lock slower; with the first heartbeat is too
// late for a cron job, which ends before it.
type sweeper struct {
	session   string
	retention time.Duration
	last      SweepState    // as the store answered last
	away      time.Duration // how long to stay away, while another sweeps
}

// first returns when to look for the first time.
func (w *sweeper) first() time.Duration {
	return time.Duration(rand.ExpFloat64() * float64(longest(w.retention)))
}

// longest is the longest pause between two slices. A process takes over from another
// within a few of them, which must not be long beside the retention.
func longest(retention time.Duration) time.Duration { return min(sweepPause, retention/32) }

// next returns when to call Sweep again, after an answer that took so long.
func (w *sweeper) next(a answer[SweepState], took time.Duration) time.Duration {
	if a.err != nil {
		return w.stayAway()
	}
	before := w.last.Turn
	w.last = a.v
	pause := a.v.pause(w.retention)
	switch {
	case a.v.Turn > 0 && a.v.By == w.session:
		w.away = 0
		return max(jitter(pause, 0.1), 4*took)
	case a.v.Turn == before:
		// A store that neither sweeps nor says who does must not be asked again and again.
	case a.v.Turn == 0, a.v.Now.Sub(a.v.At) > 2*pause+sweepSlack:
		return jitter(sweepGap, 0.5)
	}
	return w.stayAway()
}

// stayAway returns when to look whether the one that sweeps is still there. It
// doubles up to an eighth of the retention: records may stay that much longer if the
// sweeper ends and no new session starts.
func (w *sweeper) stayAway() time.Duration {
	w.away = max(longest(w.retention), min(2*w.away, w.retention/8))
	return jitter(w.away, 0.5)
}

// pause returns for how long the sweeper may rest after the last slice.
//
// Records that are idle can be anywhere, as keys have any names. To find them in time
// a whole round must take no longer than a quarter of the retention: then the store
// has at most a quarter more records than the retention asks for, and each is looked
// at about five times in its life. What the last slice had deleted is no measure by
// itself: keys with rising names leave long stretches without an idle record, which
// would never be crossed at one slice a minute while the store grows faster than that.
// But it tells of a backlog, which is worked off without delay.
func (st SweepState) pause(retention time.Duration) time.Duration {
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
