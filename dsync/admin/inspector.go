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

// New returns an inspector that works on the store of s, with commands of s. It contacts nobody, and it ends with s:
// after [dsync.Session.Close] every method that reads or writes returns [dsync.ErrClosed].
func New(s *dsync.Session) *Inspector { return &Inspector{engine.Of(s)} }

// Break asks those who hold key now to give it up, and waits until they have. Each holder is
// notified (its Lost channel closes, and the cause is [dsync.ErrRevoked]) and then has its session's
// grace to stop and unlock. After that the first waiter gets the key. The key is never taken
// from a holder that was not notified: if its process cannot be reached, Break waits until its
// session expires, or, for a hold with a fixed end, until that. If nobody
// holds key, Break does nothing. Nobody holds a key that a [dsync.Once] has sealed; see [Inspector.Forget].
//
// A process that listens for notices is notified at once, any other with its next heartbeat.
// Where the store can notify, a process listens once it has held something for a second: see
// [dsync.Options].AlwaysListen.
//
// ctx bounds only the wait: holders that were asked to give up the key still do. The error is
// that of ctx, with the store's last error added if there was one, [dsync.ErrClosed], that of
// [dsync.CheckKey], or [dsync.ErrRefused].
func (i *Inspector) Break(ctx context.Context, key string) error { return i.s.Break(ctx, key) }

// Forget removes what the store keeps of a key that nobody uses: the seal and the result of a [dsync.Once],
// the last tick of a [dsync.Periodic] and its result, the number of terms of an election, the size that
// [dsync.Semaphore.Resize] set. So keys that are named after
// a date, say, need not stay in the store forever: what is left of a forgotten key is swept after
// [dsync.Options].Retention, as that of every idle lock is. Tokens keep growing.
//
// A Once that was forgotten can run again, in processes that have not learned its result before. The ticks of a
// Periodic can run again in all processes. The terms of an election that was forgotten count from 1 again. So
// forget only what no process will use any more, or what is to start over.
//
// If a process holds the key or waits for it, the error is a [*dsync.HeldError], and nothing is forgotten; an
// expired session's claims count until another process has dropped them, as [Inspector.Break] does.
// Otherwise the error is one of those of Break.
func (i *Inspector) Forget(ctx context.Context, key string) error { return i.s.Forget(ctx, key) }

// Members returns the sessions with the given ids, and the store's time of the reading. Unknown
// ids are left out. Without ids it returns all sessions that are alive, in the order of their ids.
// Each 1,000 sessions take a reading; now is not before any heartbeat that was read. Errors are those of ctx,
// [dsync.ErrClosed] and those of the store.
func (i *Inspector) Members(ctx context.Context, ids ...string) (members []driver.Member, now time.Time, err error) {
	return i.s.Members(ctx, ids...)
}

// Observers returns the sessions that are alive and observe the election of that name, with
// leader.Election.Observe, ObserveCandidates or hooks that need it, in the order of their ids. Those of a session
// that observes elections with more than 256 KiB of names are not complete. Each 1,000 observers take a reading,
// which scans the store's sessions. Errors are those of ctx, [dsync.ErrClosed], [dsync.CheckKey] and the store.
func (i *Inspector) Observers(ctx context.Context, election string) ([]driver.Member, error) {
	return i.s.Observers(ctx, election)
}

// Stats are what a session knows of itself that is worth a metric: see [Inspector.Stats].
type Stats struct {
	// Listening says that the session gets notices now. It listens only while it needs to: see
	// [dsync.Options].AlwaysListen.
	Listening bool

	// Polling is why waiters of this session poll: an error that matches [errors.ErrUnsupported] if
	// the store can't notify, and otherwise the error that ended the last listener. Nil if the session
	// listens, or has not needed to.
	Polling error

	// Records is the number of records in the store, those of sessions included, by the last whole
	// round of sweeping that the session knows of; 0 if it knows of none. A session checks between once a
	// minute and once in an eighth of [dsync.Options].Retention.
	Records int64
}

// Stats returns what the inspector's session knows of itself. It sends no command to the store.
func (i *Inspector) Stats() Stats { return Stats(i.s.Stats()) }
