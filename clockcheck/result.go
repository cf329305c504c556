package clockcheck

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A Result is what a [Check] has measured.
type Result struct {
	// Servers lists the servers that [Options].Servers selects: first the one that the client talks to, then the others
	// that were measured, and last those that could not be measured. The latter have an Err. Without Options.Servers it
	// has one entry.
	Servers []Server

	// Spread is the greatest difference between any two clocks of the measured Servers; the truth is within Spread ±
	// SpreadBound. Spread does not depend on the host's clock, and is zero if only one server was measured.
	Spread, SpreadBound time.Duration
}

// String describes the result for people, in one line.
func (r Result) String() string {
	if len(r.Servers) == 0 {
		return "nothing measured"
	}
	var b strings.Builder
	measured, others := r.measured()
	b.WriteString(r.Servers[0].String())
	if measured > 1 {
		fmt.Fprintf(&b, "; %d servers are %v apart (±%v)", measured, readable(r.Spread), readable(r.SpreadBound))
	}
	for i, s := range others {
		if i == 0 {
			b.WriteString("; not measured: ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%v)", s.Addr, s.Err)
	}
	return b.String()
}

// measured returns how many servers were measured, and the servers that were not.
func (r Result) measured() (n int, others []Server) {
	for _, s := range r.Servers {
		if s.Err != nil {
			others = append(others, s)
		}
	}
	return len(r.Servers) - len(others), others
}

// LogValue returns the result as a group with the attributes "server", "offset", "bound" and "rtt" of the first server.
// If r.Servers has more than one, "servers" is how many were measured, and "spread" and "spread_bound" follow. If some
// were not measured, "unmeasured" has their addresses.
func (r Result) LogValue() slog.Value {
	if len(r.Servers) == 0 {
		return slog.GroupValue()
	}
	first := r.Servers[0]
	attrs := []slog.Attr{
		slog.String("server", first.Addr), slog.Duration("offset", first.Offset),
		slog.Duration("bound", first.Bound), slog.Duration("rtt", first.RTT),
	}
	measured, others := r.measured()
	if len(r.Servers) > 1 {
		attrs = append(attrs, slog.Int("servers", measured),
			slog.Duration("spread", r.Spread), slog.Duration("spread_bound", r.SpreadBound))
	}
	var names []string
	for _, s := range others {
		names = append(names, s.Addr)
	}
	if len(names) > 0 {
		attrs = append(attrs, slog.Any("unmeasured", names))
	}
	return slog.GroupValue(attrs...)
}

// A Server is the measurement of one server, or the reason why it could not be measured.
type Server struct {
	// Addr is host:port, as listed by the replica set or in [Options].Servers. It is empty for a standalone or a mongos
	// that Options.Servers does not list.
	Addr string

	// At is the host's clock at the end of the measurement.
	At time.Time

	// Offset is the server's clock less the host's at the time At: positive if the host is behind.
	// The truth is within Offset ± Bound.
	Offset, Bound time.Duration

	// RTT is the round-trip time of the fastest sample.
	RTT time.Duration

	// Samples is the number of answers that were used.
	Samples int

	// Err is nil if the server was measured. Otherwise it is the reason, and all other fields except Addr are zero. It
	// matches [ErrStepped] if a clock was stepped.
	Err error
}

// String describes the measurement for people, as in
//
//	host's clock is 3.2ms behind db1:27017 (±600µs, round trip 1.1ms)
func (s Server) String() string {
	if s.Err != nil {
		return fmt.Sprintf("%s was not measured: %v", s.Addr, s.Err)
	}
	return fmt.Sprintf("host's clock is %s (±%v, round trip %v)", direction(s.Offset, s.Addr), readable(s.Bound), readable(s.RTT))
}

// LogValue returns the server as a group of addr, offset, bound and rtt, or of addr and err.
func (s Server) LogValue() slog.Value {
	if s.Err != nil {
		return slog.GroupValue(slog.String("addr", s.Addr), slog.Any("err", s.Err))
	}
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

// readable rounds a duration for people.
func readable(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
