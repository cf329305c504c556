package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/internal/core"
)

// A Reporter learns what happens in a session, and turns it into calls of hooks and logs. The session's mutex is held
// during most calls of a Reporter. During the other calls, a command waits. So a Reporter must not block and must not
// call the session.
type Reporter interface {
	// Granted reports that h has begun.
	Granted(h *Hold, g Grant)

	// Released reports that h was live until its holder was done. It was live for the time held.
	Released(h *Hold, held time.Duration)

	// Lost reports that h has ended before its holder was done. It was live for the time held. err is what [Hold.Cause]
	// returns from now on.
	Lost(h *Hold, end *core.End, err error, held time.Duration)

	// Effect reports a successful core.Registered, a core.SessionLost, core.Beat, core.Jumped or core.Orphan.
	Effect(f core.Effect)

	// Failed reports that a command has failed, or that the store has refused it and nobody else reports that.
	// Succeeded reports that a command has succeeded. op is the command's purpose.
	Failed(op string, err error)
	Succeeded(op string)

	// Deadlock reports a possible deadlock: members[i] holds keys[i] and waits for keys[i+1], the last member for
	// keys[0].
	Deadlock(members, keys []string)

	// Log logs what no other method reports.
	Log(level slog.Level, msg string, args ...any)
}

// A Grant tells how a hold began.
type Grant struct {
	Context context.Context // context of the call that acquired the hold
	Wait    time.Duration   // time from the call to the grant, including time in the local queue
	Local   bool            // the key was handed off within this process, without a command to the store
}

// Warn logs a warning.
func (s *Session) Warn(msg string, args ...any) { s.report.Log(slog.LevelWarn, msg, args...) }

func (s *Session) info(msg string, args ...any) { s.report.Log(slog.LevelInfo, msg, args...) }

// A Handle refers to a session. A type that embeds a Handle can be passed to [Of].
type Handle struct{ s *Session }

// Handle returns the Handle of s.
func (s *Session) Handle() Handle { return Handle{s} }

func (h Handle) session() *Session { return h.s }

// Of returns the session of a *dsync.Session, for features that package dsync does not export. dsync.Session embeds a
// [Handle]. Only this package can call a Handle's method, so users of dsync see no internal type.
func Of(owner interface{ session() *Session }) *Session { return owner.session() }
