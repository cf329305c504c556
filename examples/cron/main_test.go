package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// At each tick the job runs on one host, and the other two leave it to that; the
// clocks of the hosts are up to a quarter of the period apart, and the job takes no
// time at all, some, or most of the period.
func TestOncePerTick(t *testing.T) {
	const every, ticks = time.Minute, 8
	for _, takes := range []time.Duration{0, every / 6, every/2 + every/6} {
		for _, offset := range []time.Duration{0, 10 * time.Millisecond, 7 * time.Second} {
			t.Run(takes.String()+" "+offset.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(every / 2) // from the middle between two ticks until shortly before one
					ctx, cancel := context.WithTimeout(t.Context(), ticks*every+every/3)
					defer cancel()
					var out bytes.Buffer
					f := &fleet{ttl: 10 * time.Second, json: true}
					err := run(ctx, f, every, offset, &out, func(ctx context.Context, _ time.Time) error {
						select {
						case <-time.After(takes):
						case <-ctx.Done():
							t.Errorf("the job's context ended: %v", context.Cause(ctx))
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					runs, leaves, hosts := map[string]int{}, map[string]int{}, map[string]int{}
					for _, l := range lines(t, &out) {
						switch l.Msg {
						case "runs":
							runs[l.Tick]++
							hosts[l.Process]++
						case "leaves":
							leaves[l.Tick]++
						default:
							if l.Level != "INFO" {
								t.Errorf("%+v", l)
							}
						}
					}
					if len(runs) != ticks {
						t.Errorf("the job ran at %d ticks, want %d", len(runs), ticks)
					}
					for tick, n := range runs {
						if n != 1 || leaves[tick] != 2 {
							t.Errorf("at %s the job ran %d times and was left to others %d times, want 1 and 2", tick, n, leaves[tick])
						}
					}
					if offset > 0 && hosts["process-1"] != ticks {
						t.Errorf("the job ran on %v, want on the host whose clock is ahead", hosts)
					}
				})
			})
		}
	}
}

// A host that comes too late leaves the tick out: it may have been run.
func TestLateHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &fleet{ttl: 10 * time.Second, json: true}
		err := f.run(t.Context(), &out, func(ctx context.Context, p *process) error {
			if p.index > 0 {
				return nil
			}
			h := &host{process: p, every: time.Minute, job: func(context.Context, time.Time) error {
				t.Error("the job ran")
				return nil
			}}
			tick := time.Now()
			time.Sleep(16 * time.Second)
			mu := p.locks.Mutex("cron/report")
			h.tick(ctx, mu, tick)
			if !mu.TryLock() {
				t.Error("the lock was kept")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
