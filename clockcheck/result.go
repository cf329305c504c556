package clockcheck

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A Result is what a [Check] has measured.
type Result struct {
	// At is the host's clock at the end of the measurement of the server that the
	// client talks to.
	At time.Time

	// Offset is that server's clock less the host's at that moment: positive if the
	// host is behind. The truth is within Offset ± Bound.
	Offset, Bound time.Duration

	// RTT is the round-trip time of the fastest sample of that server.
	RTT time.Duration

	// Servers lists the servers that were measured. The first is the one that the
	// client talks to.
	Servers []Server

	// Unmeasured lists the servers that [Options].Servers selects and that could not be
	// measured. Spread does not cover them.
	Unmeasured []Unmeasured

	// Spread is the greatest difference between the clocks of two of Servers; the truth
	// is within Spread ± SpreadBound. The host's clock plays no part in it. It is zero
	// if only one server was measured.
	Spread, SpreadBound time.Duration
}

// String describes the result for people, in one line.
func (r Result) String() string {
	if len(r.Servers) == 0 {
		return "nothing measured"
	}
	var b strings.Builder
	b.WriteString(r.Servers[0].String())
	if n := len(r.Servers); n > 1 {
		fmt.Fprintf(&b, "; %d servers are %v apart (±%v)", n, readable(r.Spread), readable(r.SpreadBound))
	}
	for i, u := range r.Unmeasured {
		if i == 0 {
			b.WriteString("; not measured: ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(u.String())
	}
	return b.String()
}

// LogValue returns the result as a group: server, offset, bound and rtt. If there is
// more than one server it adds servers (the number measured), spread and spread_bound,
// and unmeasured (the addresses of those that were not).
func (r Result) LogValue() slog.Value {
	if len(r.Servers) == 0 {
		return slog.GroupValue()
	}
	attrs := []slog.Attr{
		slog.String("server", r.Servers[0].Addr), slog.Duration("offset", r.Offset),
		slog.Duration("bound", r.Bound), slog.Duration("rtt", r.RTT),
	}
	if len(r.Servers) > 1 || len(r.Unmeasured) > 0 {
		attrs = append(attrs, slog.Int("servers", len(r.Servers)),
			slog.Duration("spread", r.Spread), slog.Duration("spread_bound", r.SpreadBound))
	}
	var names []string
	for _, u := range r.Unmeasured {
		names = append(names, u.Addr)
	}
	if len(names) > 0 {
		attrs = append(attrs, slog.Any("unmeasured", names))
	}
	return slog.GroupValue(attrs...)
}

// A Server is the measurement of one server.
type Server struct {
	// Addr is host:port, as the replica set or [Options].Servers has it. It is empty
	// if neither says: a standalone or a mongos, measured without Servers.
	Addr string

	// At is the host's clock at the end of the measurement.
	At time.Time

	// Offset is the server's clock less the host's at that moment: positive if the
	// host is behind. The truth is within Offset ± Bound.
	Offset, Bound time.Duration

	// RTT is the round-trip time of the fastest sample.
	RTT time.Duration

	// Samples is the number of answers that were used.
	Samples int
}

// String describes the measurement for people, as in
//
//	host's clock is 3.2ms behind db1:27017 (±600µs, round trip 1.1ms)
func (s Server) String() string {
	return fmt.Sprintf("host's clock is %s (±%v, round trip %v)", direction(s.Offset, s.Addr), readable(s.Bound), readable(s.RTT))
}

// LogValue returns the server as a group of addr, offset, bound and rtt.
func (s Server) LogValue() slog.Value {
	return slog.GroupValue(slog.String("addr", s.Addr), slog.Duration("offset", s.Offset),
		slog.Duration("bound", s.Bound), slog.Duration("rtt", s.RTT))
}

// direction says which clock is ahead, and by how much.
func direction(offset time.Duration, addr string) string {
	if addr == "" {
		addr = "the server"
	}
	if offset < 0 {
		return fmt.Sprintf("%v ahead of %s", readable(-offset), addr)
	}
	return fmt.Sprintf("%v behind %s", readable(offset), addr)
}

// An Unmeasured is a server whose clock can matter and could not be measured.
type Unmeasured struct {
	Addr string // host:port
	Err  error  // the reason; ErrStepped if the server's clock was stepped
}

func (u Unmeasured) String() string { return fmt.Sprintf("%s (%v)", u.Addr, u.Err) }

// readable rounds a duration for people.
func readable(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// The findings of a check, to be tested with errors.Is.
var (
	// ErrOffset: the host's clock is certainly farther off than the limit. The
	// error is an [*OffsetError].
	ErrOffset = errors.New("clockcheck: clock is off")

	// ErrUndecided: the clock may or may not be within the limit; the bound is too
	// wide to tell. The error is an [*UndecidedError].
	ErrUndecided = errors.New("clockcheck: clock may be off")

	// ErrStepped: a clock was stepped during the check, or the host was suspended, so
	// there is no single offset. The error is a [*StepError].
	ErrStepped = errors.New("clockcheck: clock was stepped")
)

// An OffsetError says that the difference between the host's clock and a server's is
// certainly beyond the limit: |Offset| − Bound > Limit. It is [ErrOffset].
type OffsetError struct {
	Server string        // host:port, "" if not known
	Offset time.Duration // the server's clock less the host's
	Bound  time.Duration // the truth is within Offset ± Bound
	Limit  time.Duration
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("clockcheck: host's clock is %s (±%v), the limit is %v",
		direction(e.Offset, e.Server), readable(e.Bound), e.Limit)
}

// Is reports whether target is [ErrOffset].
func (e *OffsetError) Is(target error) bool { return target == ErrOffset }

// An UndecidedError says that the bound is too wide to tell whether the clock is within
// the limit, as over a slow or busy network. More samples may help. It is
// [ErrUndecided], and not [ErrOffset].
type UndecidedError struct {
	Server string        // host:port, "" if not known
	Offset time.Duration // the server's clock less the host's
	Bound  time.Duration // the truth is within Offset ± Bound
	Limit  time.Duration
}

func (e *UndecidedError) Error() string {
	return fmt.Sprintf("clockcheck: host's clock is %s, but only within ±%v: too coarse to tell whether the limit of %v is kept",
		direction(e.Offset, e.Server), readable(e.Bound), e.Limit)
}

// Is reports whether target is [ErrUndecided].
func (e *UndecidedError) Is(target error) bool { return target == ErrUndecided }

// A StepError says that a clock was stepped during the check, so that the samples
// contradict each other. It is [ErrStepped].
type StepError struct {
	Host   bool          // the host's clock was stepped, or the host was suspended
	Server string        // if not Host: the server whose clock was stepped, host:port, "" if not known
	By     time.Duration // by how much at least; positive: ahead
}

func (e *StepError) Error() string {
	whose := "the host's clock was stepped, or the host slept,"
	switch {
	case e.Host:
	case e.Server == "":
		whose = "the server's clock was stepped"
	default:
		whose = "the clock of " + e.Server + " was stepped"
	}
	return fmt.Sprintf("clockcheck: %s during the check, by %v or more", whose, readable(e.By))
}

// Is reports whether target is [ErrStepped].
func (e *StepError) Is(target error) bool { return target == ErrStepped }
