package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
)

func TestClockVerdicts(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		d, bound time.Duration
		want     string
	}{
		{0, 0, clockOK}, {499 * ms, ms, clockOK}, {-499 * ms, ms, clockOK},
		{500 * ms, ms, clockUndecided}, {-501 * ms, ms, clockUndecided}, {0, 501 * ms, clockUndecided},
		{502 * ms, ms, clockOff}, {-502 * ms, ms, clockOff}, {time.Hour, ms, clockOff},
	} {
		if got := within(c.d, c.bound, 500*ms); got != c.want {
			t.Errorf("%v ± %v is %s, want %s", c.d, c.bound, got, c.want)
		}
	}
}

func TestClockGolden(t *testing.T) {
	server := func(addr string, offset time.Duration) clockcheck.Server {
		return clockcheck.Server{Addr: addr, Offset: offset, Bound: 412 * time.Microsecond, RTT: 812345 * time.Nanosecond, Samples: 8}
	}
	r := clockcheck.Result{
		Servers: []clockcheck.Server{server("db1:27017", 1204*time.Millisecond), server("db2:27017", -3*time.Millisecond),
			{Addr: "db3:27017", Err: errors.New("refused,\nand more")}},
		Spread: 1207 * time.Millisecond, SpreadBound: 824 * time.Microsecond,
	}
	for file, asJSON := range map[string]bool{"clock.txt": false, "clock.jsonl": true} {
		var out bytes.Buffer
		a := &app{stdout: &out, frame: new(display)}
		if err := a.printClock(r, 500*time.Millisecond, asJSON); err != nil {
			t.Error(err)
		}
		golden(t, file, out.String())
	}
}
