package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A clockJSON is the measurement of one server in JSON: see the help of the clock command.
type clockJSON struct {
	Server  string                   `json:"server"`
	Offset  *statusjson.Milliseconds `json:"offset_ms,omitempty"`
	Bound   *statusjson.Milliseconds `json:"bound_ms,omitempty"`
	RTT     *statusjson.Milliseconds `json:"rtt_ms,omitempty"`
	Verdict string                   `json:"verdict"`
	Error   string                   `json:"error,omitempty"`
}

// A spreadJSON is the last line of the JSON output: the difference between the servers' clocks.
type spreadJSON struct {
	Spread  statusjson.Milliseconds `json:"spread_ms"`
	Bound   statusjson.Milliseconds `json:"bound_ms"`
	Verdict string                  `json:"verdict"`
}

func newClock(a *app) *cobra.Command {
	var asJSON bool
	opt := clockcheck.Options{}
	c := &cobra.Command{
		Use:   "clock",
		Short: "Measure how far this host's clock is from each server's",
		Long: `Measure how far the clock of this host is from that of every server that can become
primary (in a sharded cluster: of every mongos that --uri lists), and how far the
servers' clocks are apart. The true difference is within offset ± bound; a positive offset means
that the host is behind.

  ok         certainly within --limit
  off        certainly beyond it
  undecided  either is possible: the network is too slow or too busy to tell; try more
             --samples
  unknown    the server could not be measured

Leases do not depend on hosts' clocks, but a fail-over to a server whose clock is
ahead shortens them: the spread must be below the margin (500ms by default).
clock sends only hello: it needs no rights and writes nothing.

It exits with 0 if every measured clock is ok, and with 117 if any is off or
undecided. With --json each line is an object with server, verdict and offset_ms,
bound_ms, rtt_ms, or error; the last has spread_ms, bound_ms and verdict.`,
		Example: `  leasehold clock
  leasehold clock --limit 50ms --samples 100`,
		Args: arguments(0, 0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.clock(cmd.Context(), opt, asJSON) },
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON, one line per server")
	f.DurationVar(&opt.Limit, "limit", 500*time.Millisecond, "largest allowed difference between two clocks")
	f.IntVar(&opt.Samples, "samples", 8, "number of requests to each server, at most 1000")
	return c
}

// Verdicts on a clock.
const (
	clockOK        = "ok"
	clockOff       = "off"
	clockUndecided = "undecided"
	clockUnknown   = "unknown"
)

var clockStyles = map[string]style{clockOK: good, clockOff: bad, clockUndecided: warning}

func (a *app) clock(ctx context.Context, opt clockcheck.Options, asJSON bool) error {
	if opt.Limit <= 0 {
		return usagef("--limit is %v; it must be positive", opt.Limit)
	}
	if opt.Samples < 1 || opt.Samples > 1000 {
		return usagef("--samples is %d; it must be 1 to 1000", opt.Samples)
	}
	return a.withDatabase(ctx, func(t target, db *mongo.Database) error {
		opt.Servers, opt.Timeout = t.options(), t.timeout
		r, err := clockcheck.Check(ctx, db.Client(), &opt)
		return a.judgeClock(r, err, t, opt.Limit, asJSON)
	})
}

// judgeClock prints the result of a check, and returns a failure if a clock is off or may be off, or if no server could
// be measured.
func (a *app) judgeClock(r clockcheck.Result, err error, t target, limit time.Duration, asJSON bool) error {
	switch {
	case len(r.Servers) == 0 && errors.Is(err, clockcheck.ErrStepped):
		return &failure{exitClock, fmt.Errorf("%w; try again", err)}
	case len(r.Servers) == 0:
		return t.unreached(err)
	}
	if bad := a.printClock(r, limit, asJSON); bad != nil {
		return bad
	}
	if err == nil && within(r.Spread, r.SpreadBound, limit) != clockOK {
		err = fmt.Errorf("the servers' clocks are %s apart (±%s), the limit is %v; synchronize them with NTP", span(r.Spread), span(r.SpreadBound), limit)
	}
	if err != nil {
		return &failure{exitClock, err}
	}
	return nil
}

// within returns the verdict on a difference of d ± bound.
func within(d, bound, limit time.Duration) string {
	switch {
	case d.Abs()+bound <= limit:
		return clockOK
	case d.Abs()-bound > limit:
		return clockOff
	}
	return clockUndecided
}

func (a *app) printClock(r clockcheck.Result, limit time.Duration, asJSON bool) error {
	spread := within(r.Spread, r.SpreadBound, limit)
	if asJSON {
		for _, s := range r.Servers {
			line := clockJSON{Server: s.Addr, Verdict: clockUnknown}
			if s.Err != nil {
				line.Error = oneLine(s.Err)
			} else {
				offset, bound, rtt := statusjson.Milliseconds(s.Offset), statusjson.Milliseconds(s.Bound), statusjson.Milliseconds(s.RTT)
				line.Offset, line.Bound, line.RTT, line.Verdict = &offset, &bound, &rtt, within(s.Offset, s.Bound, limit)
			}
			if err := printJSON(a.stdout, line); err != nil {
				return err
			}
		}
		return printJSON(a.stdout, spreadJSON{statusjson.Milliseconds(r.Spread), statusjson.Milliseconds(r.SpreadBound), spread})
	}
	t := newTable(a.stdout, a.display(), column{"SERVER", 0, 20}, column{"OFFSET", 0, 0}, column{"BOUND", 0, 0}, column{"ROUND TRIP", 1, 0}, column{"VERDICT", 0, 10})
	measured := 0
	for _, s := range r.Servers {
		row := cells(plain(s.Addr), none, none, none, clockUnknown)
		if s.Err != nil {
			row[4].text += ": " + oneLine(s.Err)
		} else {
			measured++
			row = cells(plain(s.Addr), span(s.Offset), "±"+span(s.Bound), span(s.RTT), within(s.Offset, s.Bound, limit))
			row[4].style = clockStyles[row[4].text]
		}
		if err := t.add(row...); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(r.Servers) == 1 {
		return nil
	}
	_, err := fmt.Fprintf(a.stdout, "\n%d of %d servers measured; they are %s apart (±%s): %s\n",
		measured, len(r.Servers), span(r.Spread), span(r.SpreadBound), spread)
	return err
}
