package clockcheck_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// L12: Check returns ErrOffset if the clock is certainly beyond the limit, and ErrUndecided if the
// bound is too wide to tell.
func TestLimit(t *testing.T) {
	off, open := clockcheck.ErrOffset, clockcheck.ErrUndecided
	cases := []struct {
		name   string
		offset time.Duration // the server's clock less the host's
		delay  time.Duration // of the request and of the answer
		opt    *clockcheck.Options
		want   error
	}{
		{"agree", 0, 0, nil, nil},
		{"within the default", 490 * time.Millisecond, time.Millisecond, nil, nil},
		{"behind", 510 * time.Millisecond, time.Millisecond, nil, off},
		{"ahead", -510 * time.Millisecond, time.Millisecond, nil, off},
		{"an hour", time.Hour, time.Millisecond, nil, off},
		{"at the limit", 500 * time.Millisecond, time.Millisecond, nil, open},
		{"slow way, clock right", 0, 600 * time.Millisecond, &clockcheck.Options{Timeout: time.Minute}, open},
		{"slow way, clock off", -2 * time.Second, 600 * time.Millisecond, &clockcheck.Options{Timeout: time.Minute}, off},
		{"own limit, within", 900 * time.Millisecond, time.Millisecond, &clockcheck.Options{Limit: time.Second}, nil},
		{"own limit, beyond", 20 * time.Millisecond, time.Millisecond, &clockcheck.Options{Limit: 10 * time.Millisecond}, off},
		{"finer than can be measured", 0, time.Millisecond, &clockcheck.Options{Limit: time.Microsecond}, open},
		{"no limit", time.Hour, 600 * time.Millisecond, &clockcheck.Options{NoLimit: true, Timeout: time.Minute}, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				f := c.servers["db:27017"]
				f.clock, f.out, f.back = ahead(tc.offset), always(tc.delay), always(tc.delay)
				c.set("rs", "db:27017")
				r, err := clockcheck.Check(t.Context(), connect(t, c.options("db:27017")), tc.opt)
				for _, e := range []error{off, open} {
					if got, want := errors.Is(err, e), e == tc.want; got != want {
						t.Errorf("errors.Is(%v, %v) is %t, want %t", err, e, got, want)
					}
				}
				if tc.want == nil && err != nil {
					t.Error(err)
				}
				if !holds(tc.offset, r.Servers[0].Offset, r.Servers[0].Bound) {
					t.Errorf("Check measured %v, want an offset of %v", r, tc.offset)
				}
				if tc.want == nil {
					return
				}
				var got *clockcheck.Error
				if !errors.As(err, &got) {
					t.Fatalf("got %v, want an *Error", err)
				}
				limit := 500 * time.Millisecond
				if tc.opt != nil && tc.opt.Limit > 0 {
					limit = tc.opt.Limit
				}
				want := clockcheck.Error{Kind: tc.want, Server: "db:27017", Offset: r.Servers[0].Offset, Bound: r.Servers[0].Bound, Limit: limit}
				if *got != want {
					t.Errorf("the error has %+v, want %+v", *got, want)
				}
			}, "db:27017")
		})
	}
}

func TestOptionsRejected(t *testing.T) {
	cases := []struct {
		name string
		opt  clockcheck.Options
		want string
	}{
		{"negative limit", clockcheck.Options{Limit: -1}, "NoLimit"},
		{"limit and none", clockcheck.Options{Limit: 1, NoLimit: true}, "one of them"},
		{"negative samples", clockcheck.Options{Samples: -1}, "1 to 1000"},
		{"many samples", clockcheck.Options{Samples: 1001}, "1 to 1000"},
		{"negative drift", clockcheck.Options{DriftRate: -1e-3}, "less than 0.1"},
		{"wild drift", clockcheck.Options{DriftRate: 0.1}, "less than 0.1"},
		{"drift is no number", clockcheck.Options{DriftRate: nan()}, "less than 0.1"},
		{"negative time-out", clockcheck.Options{Timeout: -1}, "positive"},
		{"servers", clockcheck.Options{Servers: newCluster().options("a", "b").SetDirect(true)}, "Servers"},
		{"load balancer", clockcheck.Options{Servers: newCluster().options("a").SetLoadBalanced(true)}, "load balancer"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				client := connect(t, c.options("db:27017"))
				_, err := clockcheck.Check(t.Context(), client, &tc.opt)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Check returned %v, want an error that contains %q", err, tc.want)
				}
				if _, err := clockcheck.Monitor(t.Context(), client, time.Minute, &tc.opt); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Monitor returned %v, want an error that contains %q", err, tc.want)
				}
				if n := len(c.received("db:27017")); n > 0 {
					t.Errorf("%d commands were sent, want none", n)
				}
			}, "db:27017")
		})
	}
	if _, err := clockcheck.Check(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "client is nil") {
		t.Errorf("Check of a nil client returned %v, want an error that names the client", err)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

// If a clock was never set, it is off by decades, and the error shows that.
func TestClockNeverSet(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		client := connect(t, c.options("db:27017"))
		years := 24 * 365 * time.Hour
		c.change(func() {
			c.servers["db:27017"].clock = func() time.Time { return time.Now().Add(56 * years) }
		})
		if r, err := clockcheck.Check(t.Context(), client, nil); !errors.Is(err, clockcheck.ErrOffset) || !holds(56*years, r.Servers[0].Offset, r.Servers[0].Bound) {
			t.Errorf("a clock off by decades: got %v, %v, want ErrOffset", r, err)
		}
		c.change(func() { c.servers["db:27017"].clock = func() time.Time { return time.UnixMilli(1 << 60) } })
		if _, err := clockcheck.Check(t.Context(), client, nil); err == nil || !strings.Contains(err.Error(), "never set") {
			t.Errorf("a clock off by more than a century: got %v", err)
		}
		// A server that is not MongoDB may report no time.
		c.change(func() { c.servers["db:27017"].says = func() bson.D { return bson.D{e("localTime", "noon")} } })
		if _, err := clockcheck.Check(t.Context(), client, nil); err == nil || !strings.Contains(err.Error(), "localTime") {
			t.Errorf("a server that reports no time: got %v", err)
		}
	}, "db:27017")
}

func TestServerDoesNotAnswer(t *testing.T) {
	cause := errors.New("shutting down")
	cases := []struct {
		name string
		hurt func(*fake)
		opt  *clockcheck.Options
		end  time.Duration // when ctx ends; 0: never
		want error
		took time.Duration
	}{
		{"down", func(f *fake) { f.down = true }, nil, 0, nil, 5 * time.Second}, // the client's time limit for finding a server
		{"silent", func(f *fake) { f.silent = true }, nil, 0, context.DeadlineExceeded, 10 * time.Second},
		{"silent, own limit", func(f *fake) { f.silent = true }, &clockcheck.Options{Timeout: time.Second}, 0, context.DeadlineExceeded, time.Second},
		{"ctx", func(f *fake) { f.silent = true }, nil, 2 * time.Second, cause, 2 * time.Second},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				tc.hurt(c.servers["db:27017"])
				client := connect(t, c.options("db:27017"))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tc.end > 0 {
					defer time.AfterFunc(tc.end, func() { cancel(cause) }).Stop()
				}
				begin := time.Now()
				r, err := clockcheck.Check(ctx, client, tc.opt)
				if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("got %v, %v; want %v", r, err, tc.want)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				if tc.end > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled as well", err)
				}
			}, "db:27017")
		})
	}
}

// B33: Check does not send hello within the caller's transaction, where the server would refuse it
// and abort the transaction.
func TestCheckIgnoresTheCallersSession(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "db:27017")
		client := connect(t, c.options("db:27017"))
		sess, err := client.StartSession()
		if err != nil {
			t.Fatal(err)
		}
		defer sess.EndSession(t.Context())
		if err := sess.StartTransaction(); err != nil {
			t.Fatal(err)
		}
		if _, err := clockcheck.Check(mongo.NewSessionContext(t.Context(), sess), client, nil); err != nil {
			t.Fatal(err)
		}
		received := c.received("db:27017")
		for _, cmd := range received {
			for _, field := range []string{"txnNumber", "autocommit", "startTransaction"} {
				if _, err := cmd.LookupErr(field); err == nil {
					t.Errorf("a command is part of the caller's transaction: %v", cmd)
				}
			}
			if got := cmd.Lookup("lsid").String(); got == sess.ID().String() {
				t.Errorf("a command has the caller's session: %v", cmd)
			}
		}
		if len(received) == 0 {
			t.Error("Check sent no command")
		}
	}, "db:27017")
}

func TestServerStepped(t *testing.T) {
	for _, by := range []time.Duration{5 * time.Millisecond, -5 * time.Millisecond, time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				f := c.servers["db:27017"]
				n := 0
				f.clock = func() time.Time {
					if n++; n > 6 { // the driver's own commands count, too
						return time.Now().Add(by)
					}
					return time.Now()
				}
				_, err := clockcheck.Check(t.Context(), connect(t, c.options("db:27017")), nil)
				var step *clockcheck.Error
				if !errors.Is(err, clockcheck.ErrStepped) || !errors.As(err, &step) {
					t.Fatalf("got %v, want ErrStepped", err)
				}
				if step.Host || step.Step.Abs() > by.Abs() || (by-step.Step).Abs() > 2*time.Millisecond {
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
				var step *clockcheck.Error
				if !errors.As(err, &step) || !step.Host || (by-step.Step).Abs() > time.Microsecond {
					t.Errorf("got %v, want the host's clock stepped by %v", err, by)
				}
			}, "db:27017")
		})
	}
}

// If the wall clock is slewed, not stepped, away from the monotonic clock, the check returns its
// offset.
func TestHostSlewed(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.servers["db:27017"].out = always(50 * time.Millisecond)
		begin := time.Now()
		slewed := func(now time.Time) time.Time { return now.Add(now.Sub(begin) / 25) }
		opt := clockcheck.Options{DriftRate: 0.05}
		opt.SetHostClock(func() (time.Time, time.Duration) { return slewed(time.Now()), time.Since(begin) })
		r := check(t, connect(t, c.options("db:27017")), &opt)
		s := r.Servers[0]
		if truth := time.Since(s.At); s.At != slewed(time.Now()) || !holds(truth, s.Offset, s.Bound) {
			t.Errorf("%v, the truth is %v", r, truth)
		}
	}, "db:27017")
}

// While the machine is suspended, its monotonic clock stands still, but its wall clock and the
// server's clock continue.
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
		var step *clockcheck.Error
		if !errors.As(err, &step) || !step.Host || !strings.Contains(err.Error(), "slept") {
			t.Errorf("got %v, want an error that says that the host slept", err)
		}
	}, "db:27017")
}
