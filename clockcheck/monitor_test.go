package clockcheck_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
)

// L12, while a process runs: the process is notified when its clock goes beyond the limit, and when it is back within
// the limit.
func TestMonitorTells(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		client := connect(t, c.options("db:27017"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := time.Now()
		reports, err := clockcheck.Monitor(ctx, client, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := c.servers["db:27017"]
		for i, step := range []struct {
			clock  func() time.Time
			silent bool
			want   error
		}{
			{ahead(0), false, nil},
			{ahead(time.Second), false, clockcheck.ErrOffset},
			{ahead(100 * time.Millisecond), false, nil},
			{ahead(0), true, context.DeadlineExceeded}, // the monitor continues
			{ahead(-time.Hour), false, clockcheck.ErrOffset},
		} {
			if i > 0 {
				c.change(func() { f.clock, f.silent = step.clock, step.silent })
			}
			r := <-reports
			if !errors.Is(r.Err, step.want) {
				t.Errorf("report %d: %v, want %v", i, r.Err, step.want)
			}
			if step.want == nil && len(r.Result.Servers) != 1 {
				t.Errorf("report %d: %v", i, r.Result)
			}
			due := begin.Add(time.Duration(i) * time.Minute)
			if late := time.Since(due); late < 0 || late > 11*time.Second {
				t.Errorf("report %d came %v after it was due", i, late)
			}
		}
		cancel()
		if r, open := <-reports; open {
			t.Errorf("got a report after ctx ended: %v", r)
		}
	}, "db:27017")
}

func TestMonitorKeepsTheLatest(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		f := c.servers["db:27017"]
		f.clock = ahead(time.Second)
		client := connect(t, c.options("db:27017"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reports, err := clockcheck.Monitor(ctx, client, time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		c.change(func() { f.clock = ahead(200 * time.Millisecond) })
		time.Sleep(5 * time.Second) // nobody receives the reports meanwhile
		if r := <-reports; r.Err != nil || time.Since(r.Result.Servers[0].At) > time.Second {
			t.Errorf("got %v, %v; want the latest report", r.Result, r.Err)
		}
	}, "db:27017")
}

// Whatever the monitor is doing when ctx ends, it soon closes the channel and leaves no goroutine behind. A report in
// the channel can still be received.
func TestMonitorEnds(t *testing.T) {
	for _, silent := range []bool{false, true} {
		name := "between checks"
		if silent {
			name = "in a check"
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				c.servers["db:27017"].silent = silent
				client := connect(t, c.options("db:27017"))
				ctx, cancel := context.WithCancel(t.Context())
				reports, err := clockcheck.Monitor(ctx, client, time.Hour, nil)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				begin := time.Now()
				cancel()
				n := 0
				for range reports {
					n++
				}
				if took := time.Since(begin); took > 0 {
					t.Errorf("closed %v after ctx ended, want at once", took)
				}
				if want := map[bool]int{false: 1, true: 0}[silent]; n != want {
					t.Errorf("%d reports, want %d", n, want)
				}
				synctest.Wait()
			}, "db:27017")
		})
	}
}

func TestMonitorRejectsInterval(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		client := connect(t, c.options("db:27017"))
		for _, interval := range []time.Duration{-1, 0, time.Second - 1} {
			if _, err := clockcheck.Monitor(t.Context(), client, interval, nil); err == nil || !strings.Contains(err.Error(), "at least 1s") {
				t.Errorf("%v: got %v", interval, err)
			}
		}
	}, "db:27017")
}
