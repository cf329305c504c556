package clockcheck_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
)

const ms = time.Millisecond

var (
	one = clockcheck.Result{
		Servers: []clockcheck.Server{{Addr: "db1:27017", Offset: 3200 * time.Microsecond, Bound: 600 * time.Microsecond, RTT: ms + 123*time.Nanosecond}},
	}
	three = clockcheck.Result{
		Servers: []clockcheck.Server{
			{Addr: "db1:27017", Offset: -2 * time.Second, Bound: ms, RTT: 2 * ms},
			{Addr: "db2:27017", Offset: -2100 * ms, Bound: ms, RTT: 2 * ms},
			{Addr: "db3:27017", Err: errors.New("connection refused")},
		},
		Spread: 100 * ms, SpreadBound: 2 * ms,
	}
	nameless = clockcheck.Result{Servers: []clockcheck.Server{{}}}
)

func TestWords(t *testing.T) {
	cases := []struct {
		what interface{ String() string }
		want string
	}{
		{one, "host's clock is 3.2ms behind db1:27017 (±600µs, round trip 1ms)"},
		{one.Servers[0], "host's clock is 3.2ms behind db1:27017 (±600µs, round trip 1ms)"},
		{three.Servers[2], "db3:27017 was not measured: connection refused"},
		{three, "host's clock is 2s ahead of db1:27017 (±1ms, round trip 2ms); 2 servers are 100ms apart (±2ms); not measured: db3:27017 (connection refused)"},
		{nameless, "host's clock is 0s behind the server (±0s, round trip 0s)"},
		{clockcheck.Result{}, "nothing measured"},
	}
	for _, tc := range cases {
		if got := tc.what.String(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestErrorWords(t *testing.T) {
	cases := []struct {
		err  error
		want string
	}{
		{&clockcheck.Error{Kind: clockcheck.ErrOffset, Server: "db1:27017", Offset: 1204 * ms, Bound: 412 * time.Microsecond, Limit: 500 * ms},
			"clockcheck: host's clock is 1.204s behind db1:27017 (±412µs), the limit is 500ms"},
		{&clockcheck.Error{Kind: clockcheck.ErrUndecided, Offset: -400 * ms, Bound: 200 * ms, Limit: 500 * ms},
			"clockcheck: host's clock is 400ms ahead of the server, but only within ±200ms: too coarse to tell whether the limit of 500ms is kept"},
		{&clockcheck.Error{Kind: clockcheck.ErrStepped, Host: true, Step: time.Hour},
			"clockcheck: the host's clock was stepped, or the host slept, during the check, by 1h0m0s or more"},
		{&clockcheck.Error{Kind: clockcheck.ErrStepped, Server: "db1:27017", Step: -5 * ms},
			"clockcheck: the clock of db1:27017 was stepped during the check, by -5ms or more"},
		{&clockcheck.Error{Kind: clockcheck.ErrStepped, Step: 5 * ms},
			"clockcheck: the server's clock was stepped during the check, by 5ms or more"},
	}
	for _, tc := range cases {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestLogValue(t *testing.T) {
	cases := []struct {
		what slog.LogValuer
		want string
	}{
		{one, "clock.server=db1:27017 clock.offset=3.2ms clock.bound=600µs clock.rtt=1.000123ms"},
		{one.Servers[0], "clock.addr=db1:27017 clock.offset=3.2ms clock.bound=600µs clock.rtt=1.000123ms"},
		{three.Servers[2], `clock.addr=db3:27017 clock.err="connection refused"`},
		{three, "clock.server=db1:27017 clock.offset=-2s clock.bound=1ms clock.rtt=2ms clock.servers=2 clock.spread=100ms clock.spread_bound=2ms clock.unmeasured=[db3:27017]"},
		{clockcheck.Result{}, ""},
	}
	for _, tc := range cases {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "clock", tc.what)
		_, got, _ := strings.Cut(strings.TrimSpace(b.String()), "msg=m")
		if got = strings.TrimSpace(got); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
