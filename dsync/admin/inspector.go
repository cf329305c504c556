package admin

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// An Inspector inspects and manages the keys and sessions of a store. Make one with [New]. All methods may be called
// concurrently.
type Inspector struct {
	s *engine.Session
}

// New returns an inspector for the store of s. It sends its commands through s; New itself sends none. After
// [dsync.Session.Close] every method that reads or writes returns [dsync.ErrClosed].
func New(s *dsync.Session) *Inspector { return &Inspector{engine.Of(s)} }

// Break asks the current holders of key to give it up, and waits until they have done so. Each holder is notified (its
// Lost channel closes, and the cause is [dsync.ErrRevoked]) and then has its session's grace to stop and unlock. After
// that the first waiter gets the key. The key is never taken from a holder that was not notified. If the holder's
// process can't be reached, Break waits until the hold's fixed end or, if it has none, until the holder's session
// expires. If nobody holds key, Break changes nothing. It costs a read, after a heartbeat (as after each, the session
// then reads up to 500 of the keys that it holds) or, if the session is not registered, its registration: a read alone
// might be answered by a deposed primary, which does not know the latest holders. Nobody holds a key that a [dsync.Once]
// has sealed; see [Inspector.Forget].
//
// A process that listens for notices is notified at once, any other process with its next
// heartbeat. Where the store can notify, a process listens once it has held something for a second:
// see [dsync.Options].AlwaysListen.
//
// ctx bounds only the wait: holders that were asked to give up the key still do so. The error is ctx's (with the
// store's last error, if there was one), [dsync.ErrClosed], [dsync.CheckKey]'s or [dsync.ErrRefused].
func (i *Inspector) Break(ctx context.Context, key string) error { return i.s.Break(ctx, key) }

// Forget removes what the store keeps about a key that nobody uses: the seal and the result of a [dsync.Once], the
// last tick of a [dsync.Periodic] and its result, the number of terms of an election, and the size set by
// [dsync.Semaphore.Resize]. So keys that are named after a date, for example, need not stay in the store forever:
// the rest of a forgotten key is swept after [dsync.Options].Retention, like every idle lock. Tokens keep growing.
//
// A forgotten Once can run again, in processes that have not learned its result before. The ticks of a forgotten
// Periodic can run again in all processes. The terms of a forgotten election count from 1 again. So forget only keys
// that no process will use again, or that should start over.
//
// If a process holds the key or waits for it, the error is a [*dsync.HeldError], and nothing is forgotten. The claims
// of an expired session count as well, until they are dropped, for example by [Inspector.Break]. Other errors are
// Break's.
func (i *Inspector) Forget(ctx context.Context, key string) error { return i.s.Forget(ctx, key) }

// Members returns the sessions with the given ids, and the time of the reading, by the store's clock. Unknown ids are
// left out. Without ids it returns all sessions that are alive, ordered by id. It reads 1,000 sessions at a time. The
// returned time is no earlier than any heartbeat that was read. The error is ctx's, [dsync.ErrClosed] or the store's.
func (i *Inspector) Members(ctx context.Context, ids ...string) (members []driver.Member, now time.Time, err error) {
	return i.s.Members(ctx, ids...)
}

// Observers returns the live sessions that observe the election of that name, ordered by id. A session observes it
// through leader.Election.Observe, ObserveCandidates or hooks that need one of them. Observers can miss a session that
// observes elections with more than 256 KiB of names. It reads 1,000 observers at a time, and each reading scans the
// store's sessions. The error is ctx's, [dsync.ErrClosed], [dsync.CheckKey]'s or the store's.
func (i *Inspector) Observers(ctx context.Context, election string) ([]driver.Member, error) {
	return i.s.Observers(ctx, election)
}

// Stats are facts about a session for its metrics: see [Inspector.Stats].
type Stats struct {
	// Listening reports whether the session gets notices now. It listens only while it needs to:
	// see [dsync.Options].AlwaysListen.
	Listening bool

	// Polling is the reason why this session's waiters poll: an error that matches [errors.ErrUnsupported] if the store
	// can't notify, and otherwise the error that ended the last listener. It is nil if the session listens, or has not
	// needed to listen.
	Polling error

	// Records is the number of records in the store, including those of sessions. It was counted in the last complete
	// round of sweeping that the session knows of, and is 0 if the session knows of none. A session reads the number
	// again at intervals between a minute and an eighth of [dsync.Options].Retention.
	Records int64
}

// Stats returns the Stats of the inspector's session. It sends no command to the store.
func (i *Inspector) Stats() Stats {
	listening, records, polling := i.s.Stats()
	return Stats{listening, polling, records}
}
