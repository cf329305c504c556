package core

import (
	"math"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	// sweepPause is the longest pause of a sweeper between two slices. It is also the mean time until a new session
	// first checks whether anybody sweeps. If the retention is less than about half an hour, both are shorter: see
	// longestPause.
	sweepPause = time.Minute

	// sweepBrisk is the longest pause while the size of the store is unknown.
	sweepBrisk = time.Second

	// sweepGap is the shortest pause. A sweeper also pauses for at least four times as long as the last slice took,
	// so that sweeping uses at most a fifth of a slow server's time.
	sweepGap = 100 * time.Millisecond

	// sweepSlack is how late a slice may be before other sessions conclude that the sweeper has ended.
	sweepSlack = 10 * time.Second
)

// A sweeper decides when its session sweeps the store.
//
// One session sweeps for the whole fleet, slice by slice. The other sessions see its progress in the store's
// [driver.SweepState], and check less and less often. When the sweeper has ended, the next session that checks
// continues where the sweeper stopped. So a fleet with nothing to sweep sends about one Sweep a minute, however many
// processes it has. No record is missed, even though processes come and go.
//
// A session first checks after an exponentially distributed time with a mean of a minute. So most processes that live
// for seconds send nothing. Yet many such processes, one after the other, check as often as a single process that runs
// as long as all of them together. The alternatives are worse. Sweeping in Close would make Close slower. Sweeping
// after a number of commands would make one Lock slower. Sweeping with the first heartbeat would be too late for a cron
// job, because the job ends before that.
type sweeper struct {
	due  Instant           // when to sweep; never: the session does not sweep, or a Sweep is under way
	last driver.SweepState // the store's last answer
	away time.Duration     // mean time until the next check while another session sweeps
}

// sweepLater schedules a new session's first check.
func (c *Core) sweepLater() {
	c.sweeper = sweeper{due: never}
	if c.cfg.Retention > 0 {
		u := float64(1+c.cfg.Rand(1<<52)) / (1 << 52)
		c.sweeper.due = c.now.Add(time.Duration(-math.Log(u) * float64(longestPause(c.cfg.Retention))))
	}
}

// longestPause returns the longest pause between two slices. Another session takes over within a few such pauses, so
// they must be short compared with the retention.
func longestPause(retention time.Duration) time.Duration { return min(sweepPause, retention/32) }

func (c *Core) sweepDue() {
	if c.sweeper.due <= c.now && c.session.id != "" {
		c.sweeper.due = never
		c.send(&Command{Op: Sweep, Session: c.session.id, Last: c.sweeper.last}, 0)
	}
}

// swept schedules the next Sweep, given the answer to the last one.
func (c *Core) swept(s *sent, r *Reply) {
	if s.Session == c.session.id && c.closing == nil {
		c.sweeper.due = c.now.Add(c.nextSweep(r, c.now.Sub(s.at)))
	}
}

func (c *Core) nextSweep(r *Reply, took time.Duration) time.Duration {
	w, st := &c.sweeper, &r.Swept
	if r.Err != nil {
		return c.stayAway()
	}
	before := w.last.Turn
	w.last = *st
	pause := pauseAfter(st, c.cfg.Retention)
	switch {
	case st.Turn > 0 && st.By == c.session.id:
		w.away = 0
		return max(c.cfg.jitter(pause, 10), 4*took)
	case st.Turn == before:
		// If a store neither sweeps nor reports which session does, don't check often.
	case st.Turn == 0, st.Now.Sub(st.At) > 2*pause+sweepSlack:
		return c.cfg.jitter(sweepGap, 2)
	}
	return c.stayAway()
}

// stayAway returns how long to wait before checking again whether another session still sweeps. The mean wait doubles,
// up to an eighth of the retention. If the sweeper ends and no new session starts, idle records may stay that much
// longer.
func (c *Core) stayAway() time.Duration {
	w := &c.sweeper
	w.away = max(longestPause(c.cfg.Retention), min(2*w.away, c.cfg.Retention/8))
	return c.cfg.jitter(w.away, 2)
}

// pauseAfter returns how long the sweeper may wait after the last slice.
//
// Idle records can be anywhere, because keys can have any names. To find them in time, a whole round must take no
// longer than a quarter of the retention. Then the store has at most a quarter more records than the retention
// requires, and each record is examined about five times in its life. The pace must not depend only on how many records
// the last slice deleted, because a sweeper could then fall behind a fast-growing store. If new keys have ascending
// names, there are long stretches without an idle record, and each slice of such a stretch would take a minute. But if
// the last slice deleted many records, there is a backlog, so the sweeper hardly pauses.
func pauseAfter(st *driver.SweepState, retention time.Duration) time.Duration {
	most := longestPause(retention)
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
