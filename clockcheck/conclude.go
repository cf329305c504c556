package clockcheck

import (
	"errors"
	"time"
)

// conclude makes the result of what was measured: the difference from the wall
// clock for each server when it had answered, those between servers for the
// moment when the last had.
func (c *check) conclude(all []*measured, missing []Unmeasured) (Result, error) {
	wall, at, _ := c.host.wall()
	if by := c.host.moved(wall, at); by != 0 {
		return Result{}, &StepError{Host: true, By: by}
	}
	r := Result{Unmeasured: missing}
	var last time.Duration
	for _, m := range all {
		s := Server{Addr: m.addr, At: m.now, RTT: m.rtt, Samples: m.n}
		s.Offset, s.Bound = m.later(m.done, c.opt.DriftRate).minus(m.wall).middle()
		r.Servers = append(r.Servers, s)
		last = max(last, m.done)
	}
	var clocks []interval
	for _, m := range all {
		clocks = append(clocks, m.later(last, c.opt.DriftRate))
	}
	own := r.Servers[0]
	r.At, r.Offset, r.Bound, r.RTT = own.At, own.Offset, own.Bound, own.RTT
	r.Spread, r.SpreadBound = spread(clocks).middle()
	return r, c.judge(r)
}

// spread returns where the greatest difference of two of the clocks is.
func spread(clocks []interval) interval {
	var s interval
	for i, a := range clocks {
		for j, b := range clocks {
			if i != j {
				d := a.minus(b)
				s = interval{max(s.lo, d.lo), max(s.hi, d.hi)}
			}
		}
	}
	return s
}

// judge returns the gravest of what is to be said: the largest offset that is
// certainly beyond the limit, else a server's clock that was stepped, else the
// widest bound that leaves it open.
func (c *check) judge(r Result) error {
	var off *OffsetError
	var open *UndecidedError
	for _, s := range r.Servers {
		if c.opt.NoLimit {
			break
		}
		size := s.Offset.Abs()
		switch {
		case size-s.Bound > c.opt.Limit:
			if off == nil || size > off.Offset.Abs() {
				off = &OffsetError{Server: s.Addr, Offset: s.Offset, Bound: s.Bound, Limit: c.opt.Limit}
			}
		case size+s.Bound > c.opt.Limit:
			if open == nil || s.Bound > open.Bound {
				open = &UndecidedError{Server: s.Addr, Offset: s.Offset, Bound: s.Bound, Limit: c.opt.Limit}
			}
		}
	}
	if off != nil {
		return off
	}
	for _, u := range r.Unmeasured {
		if errors.Is(u.Err, ErrStepped) {
			return u.Err
		}
	}
	if open != nil {
		return open
	}
	return nil
}

// readable rounds a duration for people.
func readable(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
