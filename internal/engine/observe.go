package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// Load returns what the store knows about key. The error is ctx's, [ErrClosed], [ErrInvalidKey] or the store's.
func (s *Session) Load(ctx context.Context, key string) (driver.State, error) {
	return s.load(ctx, key, maxShown)
}

func (s *Session) load(ctx context.Context, key string, waiters int) (driver.State, error) {
	if err := CheckKey(key); err != nil {
		return driver.State{}, err
	}
	r, err := s.ask(ctx, core.Ask{Command: core.Command{Op: core.Load, Key: key, Waiters: waiters}})
	return r.State, err
}

// maxShown is the greatest number of waiters that Load reads.
const maxShown = 1000

// Members returns the sessions with the given ids and, as now, the store's time when it read them. Unknown ids are
// omitted. Without ids it returns all sessions that are alive, ordered by id. It reads up to 1,000 sessions with each
// command. No heartbeat in the result is later than now.
func (s *Session) Members(ctx context.Context, ids ...string) (members []driver.Member, now time.Time, err error) {
	if len(ids) == 0 {
		return s.readPages(ctx, driver.SessionQuery{})
	}
	for some := range slices.Chunk(ids, core.MaxRead) {
		m, at, err := s.readSessions(ctx, driver.SessionQuery{IDs: some})
		if err != nil {
			return nil, time.Time{}, err
		}
		members, now = append(members, m...), at
	}
	return members, now, nil
}

// readPages reads all sessions that the query asks for, and returns the store's time when it read the last of them.
func (s *Session) readPages(ctx context.Context, q driver.SessionQuery) (all []driver.Member, now time.Time, err error) {
	for q.Limit = core.MaxRead; ; q.After = all[len(all)-1].ID {
		page, now, err := s.readSessions(ctx, q)
		if err != nil {
			return nil, time.Time{}, err
		}
		if all = append(all, page...); len(page) < core.MaxRead {
			return all, now, nil
		}
	}
}

// readSessions reads up to core.MaxRead sessions with one command.
func (s *Session) readSessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	r, err := s.ask(ctx, core.Ask{Command: core.Command{Op: core.Read, Sessions: q}})
	return r.Members, r.Now, err
}

// Observe calls f, one call at a time, with the state of key: first with the current state, then after each change, and
// from time to time even without a change. After 8 changes in quick succession, it calls f at most ten times a second,
// but always with the latest state. If an error occurs, f gets the error with the last known state.
//
// Observe returns at once. Soon after ctx or the session has ended, it stops calling f and calls end. f and end must
// not wait for the session's end. [Session.Observers] lists the session until the observation ends. But if the keys
// that the session observes have more than [driver.MaxObserved] bytes in total, the last of them in byte order are
// observed without being listed.
func (s *Session) Observe(ctx context.Context, key string, f func(driver.State, error), end func()) {
	if !s.spawn(func() {
		defer end()
		changed := s.watch(key)
		defer s.unwatch(key, changed)
		s.observe(ctx, key, changed, f)
	}) {
		end()
	}
}

func (s *Session) observe(ctx context.Context, key string, changed <-chan struct{}, f func(driver.State, error)) {
	failed, p := 0, newPace(s.config.Poll)
	var last driver.State
	for d := time.Duration(0); s.waitFor(ctx, changed, d) == nil; {
		if gap := p.next(time.Now()); gap > 0 {
			if s.wait(ctx, gap) != nil {
				return
			}
			select {
			case <-changed: // the next reading will show this change too
			default:
			}
		}
		st, err := s.Load(ctx, key)
		switch {
		case ctx.Err() != nil || errors.Is(err, core.ErrClosed):
			return
		case err != nil:
			d = s.pause(failed)
			failed++
		default:
			failed, last, d = 0, st, s.pollTime()
		}
		f(last, err)
	}
}

// Observers returns all sessions that are alive and observe key, ordered by id. It reads up to a thousand sessions with
// each command. For each command, the store scans the records of all its sessions. The error is ctx's, [ErrClosed],
// [ErrInvalidKey] or the store's.
func (s *Session) Observers(ctx context.Context, key string) ([]driver.Member, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	all, _, err := s.readPages(ctx, driver.SessionQuery{Observing: key})
	return all, err
}

// Queue returns all claims in the queue for key, in the order in which they will be served. [Session.Load] returns only
// the first 1,000. Queue returns the same errors as Load.
func (s *Session) Queue(ctx context.Context, key string) ([]driver.Waiter, error) {
	st, err := s.load(ctx, key, driver.MaxQueue)
	return st.WaitersAhead, err
}

// watch returns a channel that gets a value when key may have changed.
func (s *Session) watch(key string) (changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = make(chan struct{}, 1)
	if s.observers[key] == nil {
		s.observers[key] = make(map[chan struct{}]bool)
	}
	s.observers[key][changed] = true
	s.step(core.Observe{Key: key, N: 1})
	return changed
}

// unwatch undoes watch.
func (s *Session) unwatch(key string, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.observers[key], changed)
	if len(s.observers[key]) == 0 {
		delete(s.observers, key)
	}
	s.step(core.Observe{Key: key, N: -1})
}

// pollTime returns how long an observer waits for a notice before it reads the key again.
func (s *Session) pollTime() time.Duration {
	return core.Jitter(s.PollInterval(), 5, rand.Int64N)
}

// A pace limits how often an observer reads its key, by the generic cell rate algorithm. The first changes are read
// at once. If more changes follow, one reading covers all changes within a gap. For example, if N processes start
// together, join a queue and observe its key, they cause N²/2 notices, but far fewer readings.
type pace struct {
	gap time.Duration
	due time.Time // when the next reading would be due if readings were always a gap apart
}

// newPace returns a pace for an observer with the given poll interval; 0 means the default.
func newPace(poll time.Duration) pace {
	const gap = 100 * time.Millisecond
	if poll > 0 {
		return pace{gap: min(gap, poll)}
	}
	return pace{gap: gap}
}

// next returns how long the next reading must wait from now on.
func (p *pace) next(now time.Time) time.Duration {
	const atOnce = 8
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(p.gap)
	return p.due.Sub(now) - atOnce*p.gap
}

// Keys returns, in byte order, the states of the first n keys that begin with prefix and are greater than after. The
// error is ctx's, [ErrClosed] or the store's.
func (s *Session) Keys(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
	r, err := s.ask(ctx, core.Ask{Command: core.Command{Op: core.Keys, Keys: driver.KeyQuery{Prefix: prefix, After: after, Limit: n}}})
	return r.States, err
}
