package clockcheck_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
)

func TestServerStepped(t *testing.T) {
	for _, by := range []time.Duration{5 * time.Millisecond, -5 * time.Millisecond, time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				f := c.servers["db:27017"]
				n := 0
				f.clock = func() time.Time {
					if n++; n > 6 { // the driver's own among them
						return time.Now().Add(by)
					}
					return time.Now()
				}
				_, err := clockcheck.Check(t.Context(), connect(t, c.options("db:27017")), nil)
				var step *clockcheck.StepError
				if !errors.Is(err, clockcheck.ErrStepped) || !errors.As(err, &step) {
					t.Fatalf("got %v, want ErrStepped", err)
				}
				if step.Host || step.By.Abs() > by.Abs() || (by-step.By).Abs() > 2*time.Millisecond {
					t.Errorf("got %v, want the server's clock stepped by %v", err, by)
				}
			}, "db:27017")
		})
	}
}

func TestHostStepped(t *testing.T) {
	for _, by := range []time.Duration{20 * time.Microsecond, -20 * time.Microsecond, time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				begin := time.Now()
				opt := clockcheck.Options{DriftRate: 1e-6}
				opt.SetHostClock(func() (time.Time, time.Duration) {
					now, mono := time.Now(), time.Since(begin)
					if mono > 500*time.Microsecond {
						now = now.Add(by)
					}
					return now, mono
				})
				_, err := clockcheck.Check(t.Context(), connect(t, c.options("db:27017")), &opt)
				var step *clockcheck.StepError
				if !errors.As(err, &step) || !step.Host || (by-step.By).Abs() > time.Microsecond {
					t.Errorf("got %v, want the host's clock stepped by %v", err, by)
				}
			}, "db:27017")
		})
	}
}

// A wall clock that is slewed away from the monotonic one is not stepped, and it
// is its offset that is asked for.
func TestHostSlewed(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.servers["db:27017"].out = always(50 * time.Millisecond)
		begin := time.Now()
		slewed := func(now time.Time) time.Time { return now.Add(now.Sub(begin) / 25) }
		opt := clockcheck.Options{DriftRate: 0.05}
		opt.SetHostClock(func() (time.Time, time.Duration) { return slewed(time.Now()), time.Since(begin) })
		r := check(t, connect(t, c.options("db:27017")), &opt)
		if truth := time.Since(r.At); r.At != slewed(time.Now()) || !holds(truth, r.Offset, r.Bound) {
			t.Errorf("%v, the truth is %v", r, truth)
		}
	}, "db:27017")
}

// The monotonic clock stands still while the machine is suspended; the wall clock
// does not, and neither does the server's.
func TestHostSlept(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		const slept = time.Minute
		begin := time.Now()
		opt := clockcheck.Options{}
		opt.SetHostClock(func() (time.Time, time.Duration) {
			mono := time.Since(begin)
			if mono > 500*time.Microsecond {
				return time.Now().Add(slept), mono
			}
			return time.Now(), mono
		})
		c.servers["db:27017"].clock = func() time.Time {
			if time.Since(begin) > 500*time.Microsecond {
				return time.Now().Add(slept)
			}
			return time.Now()
		}
		_, err := clockcheck.Check(t.Context(), connect(t, c.options("db:27017")), &opt)
		var step *clockcheck.StepError
		if !errors.As(err, &step) || !step.Host || !strings.Contains(err.Error(), "slept") {
			t.Errorf("got %v, want an error that says that the host slept", err)
		}
	}, "db:27017")
}
