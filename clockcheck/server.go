package clockcheck

import (
	"fmt"
	"log/slog"
	"time"
)

// A Server is what was measured of one server.
type Server struct {
	// Addr is host:port, as the replica set or [Options].Servers has it. It is
	// empty if neither tells: a standalone or a mongos that only a client leads to.
	Addr string

	// At is the host's clock when the server had been measured.
	At time.Time

	// Offset is the server's clock less the host's at that moment: positive if the
	// host is behind. The truth is within Offset ± Bound.
	Offset, Bound time.Duration

	// RTT is the round-trip time of the fastest sample.
	RTT time.Duration

	// Samples is how many answers of the server were used.
	Samples int
}

// String says it to a person, as in
//
//	host's clock is 3.2ms behind db1:27017 (±600µs, round trip 1.1ms)
func (s Server) String() string {
	return fmt.Sprintf("host's clock is %s (±%v, round trip %v)", words(s.Offset, s.Addr), readable(s.Bound), readable(s.RTT))
}

// LogValue returns the server as a group of addr, offset, bound and rtt.
func (s Server) LogValue() slog.Value {
	return slog.GroupValue(slog.String("addr", s.Addr), slog.Duration("offset", s.Offset),
		slog.Duration("bound", s.Bound), slog.Duration("rtt", s.RTT))
}

// words says which clock is ahead.
func words(offset time.Duration, addr string) string {
	if addr == "" {
		addr = "the server"
	}
	if offset < 0 {
		return fmt.Sprintf("%v ahead of %s", readable(-offset), addr)
	}
	return fmt.Sprintf("%v behind %s", readable(offset), addr)
}
