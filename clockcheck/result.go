package clockcheck

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A Result is what a [Check] has measured.
type Result struct {
	// At is the host's clock when the server that the client leads to had been
	// measured.
	At time.Time

	// Offset is that server's clock less the host's at that moment: positive if the
	// host is behind. The truth is within Offset ± Bound.
	Offset, Bound time.Duration

	// RTT is that server's round-trip time, of the fastest sample.
	RTT time.Duration

	// Servers are all that were measured. The first is the one that the client
	// leads to.
	Servers []Server

	// Unmeasured are the servers that are to be measured by [Options].Servers and
	// could not be. They are missing from Spread as well.
	Unmeasured []Unmeasured

	// Spread is how far the two of Servers are apart whose clocks are farthest; the
	// truth is within Spread ± SpreadBound. The host's clock has no part in it.
	// Zero if there is only one.
	Spread, SpreadBound time.Duration
}

// String says it to a person, in one line.
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

// LogValue returns the result as a group: offset, bound, rtt and server, and, where
// several were to be measured, servers (their number), spread, spread_bound and
// unmeasured (their addresses).
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
