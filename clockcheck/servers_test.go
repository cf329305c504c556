package clockcheck_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// found returns the measurement of the server at addr.
func found(t testing.TB, r clockcheck.Result, addr string) clockcheck.Server {
	t.Helper()
	for _, s := range r.Servers {
		if s.Addr == addr {
			return s
		}
	}
	t.Fatalf("%s is not among the servers of %v", addr, r)
	return clockcheck.Server{}
}

func addrs(r clockcheck.Result) []string {
	var all []string
	for _, s := range r.Servers {
		if s.Err == nil {
			all = append(all, s.Addr)
		}
	}
	slices.Sort(all)
	return all
}

func missing(r clockcheck.Result) []string {
	var all []string
	for _, s := range r.Servers {
		if s.Err != nil {
			all = append(all, s.Addr)
		}
	}
	return all
}

func TestEveryMemberIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017", "c:27017")
		offsets := map[string]time.Duration{"a:27017": 30 * time.Millisecond, "b:27017": -70 * time.Millisecond, "c:27017": 0}
		for addr, d := range offsets {
			f := c.servers[addr]
			f.clock, f.out, f.back = ahead(d), always(time.Millisecond), always(3*time.Millisecond)
		}
		opt := c.options("a:27017", "b:27017").SetReplicaSet("rs")
		r := check(t, connect(t, opt), &clockcheck.Options{Servers: opt})
		if got, want := addrs(r), []string{"a:27017", "b:27017", "c:27017"}; !slices.Equal(got, want) {
			t.Errorf("measured %v, want %v, which leaves out passives and arbiters", got, want)
		}
		for addr, want := range offsets {
			if s := found(t, r, addr); !holds(want, s.Offset, s.Bound) || s.RTT != 4*time.Millisecond || s.Samples != 8 {
				t.Errorf("got %+v, want an offset of %v, a round trip of 4ms and 8 samples", s, want)
			}
		}
		if first := r.Servers[0]; first.Addr != "a:27017" {
			t.Errorf("the first server is not the primary: %+v", r)
		}
		if !holds(100*time.Millisecond, r.Spread, r.SpreadBound) || r.SpreadBound > 6*time.Millisecond {
			t.Errorf("the spread is %v ± %v, want 100ms", r.Spread, r.SpreadBound)
		}
		if left := missing(r); len(left) > 0 {
			t.Errorf("not measured: %v", left)
		}
		// Any server that is too far off counts, not only the primary.
		c.change(func() { c.servers["c:27017"].clock = ahead(-time.Hour) })
		_, err := clockcheck.Check(t.Context(), connect(t, opt), &clockcheck.Options{Servers: opt})
		var off *clockcheck.Error
		if !errors.As(err, &off) || off.Server != "c:27017" {
			t.Errorf("got %v, want the offset from c", err)
		}
		if _, err := clockcheck.Check(t.Context(), connect(t, opt), nil); err != nil {
			t.Errorf("the primary alone: %v", err)
		}
	}, "a:27017", "b:27017", "c:27017")
}

// The spread between the servers' clocks does not depend on their offset from the host's clock.
func TestSpreadOfEqualClocks(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017", "c:27017")
		opt := c.options("a:27017").SetReplicaSet("rs")
		for _, f := range c.servers {
			f.clock = ahead(time.Hour)
		}
		r := check(t, connect(t, opt), &clockcheck.Options{Servers: opt, NoLimit: true})
		if !holds(0, r.Spread, r.SpreadBound) || r.SpreadBound > time.Millisecond {
			t.Errorf("the spread is %v ± %v, want 0", r.Spread, r.SpreadBound)
		}
	}, "a:27017", "b:27017", "c:27017")
}

func TestMemberNotMeasured(t *testing.T) {
	cases := []struct {
		name string
		hurt func(*cluster, *fake)
		want string // must be in the reason
		took time.Duration
	}{
		{"down", func(_ *cluster, f *fake) { f.down = true }, "connection refused by b:27017", hesitation},
		{"silent", func(_ *cluster, f *fake) { f.silent = true }, "deadline", 2*time.Second + hesitation},
		{"unknown name", func(c *cluster, _ *fake) { delete(c.servers, "b:27017") }, "connection refused", hesitation},
		{"another deployment", func(_ *cluster, f *fake) { f.says = standalone() }, "not of this deployment", hesitation},
		{"stepped", func(_ *cluster, f *fake) {
			n := 0
			f.clock = func() time.Time { n++; return time.Now().Add(time.Duration(n) * time.Second) }
		}, "clock of b:27017 was stepped", hesitation},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				c.set("rs", "a:27017", "b:27017", "c:27017")
				tc.hurt(c, c.servers["b:27017"])
				c.servers["a:27017"].clock = ahead(100 * time.Millisecond)
				opt := c.options("a:27017").SetReplicaSet("rs")
				begin := time.Now()
				r, err := clockcheck.Check(t.Context(), connect(t, opt), &clockcheck.Options{Servers: opt, Timeout: 2 * time.Second})
				if took := time.Since(begin); took > tc.took {
					t.Errorf("took %v, want at most %v", took, tc.took)
				}
				if stepped := tc.name == "stepped"; errors.Is(err, clockcheck.ErrStepped) != stepped || err != nil && !stepped {
					t.Error(err)
				}
				if got := addrs(r); !slices.Equal(got, []string{"a:27017", "c:27017"}) {
					t.Errorf("measured %v, want a and c", got)
				}
				if got := missing(r); !slices.Equal(got, []string{"b:27017"}) {
					t.Fatalf("not measured: %v, want b", got)
				}
				if got := r.Servers[2].Err.Error(); !strings.Contains(got, tc.want) {
					t.Errorf("the reason is %q, want %q", got, tc.want)
				}
				// Waiting for b does not widen the others' bounds.
				if !holds(100*time.Millisecond, r.Servers[0].Offset, r.Servers[0].Bound) || r.Servers[0].Bound > time.Millisecond || r.SpreadBound > 2*time.Millisecond {
					t.Errorf("got %v", r)
				}
			}, "a:27017", "b:27017", "c:27017")
		})
	}
}

func TestCheckEndsWithContextAmongMembers(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017")
		c.servers["b:27017"].silent = true
		opt := c.options("a:27017").SetReplicaSet("rs")
		client := connect(t, opt)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		r, err := clockcheck.Check(ctx, client, &clockcheck.Options{Servers: opt})
		if took := time.Since(begin); took > 4*time.Second || !errors.Is(err, context.DeadlineExceeded) || len(r.Servers) > 0 {
			t.Errorf("after %v: %v, %v", took, r, err)
		}
	}, "a:27017", "b:27017")
}

func TestEveryRouterIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		for addr, d := range map[string]time.Duration{"x:27017": 0, "y:27017": 200 * time.Millisecond} {
			c.servers[addr].says, c.servers[addr].clock = router(), ahead(d)
		}
		opt := c.options("x:27017", "y:27017", "z:27017")
		r := check(t, connect(t, c.options("x:27017", "y:27017")), &clockcheck.Options{Servers: opt})
		if got := addrs(r); !slices.Equal(got, []string{"x:27017", "y:27017"}) {
			t.Errorf("measured %v, want each router once, by name", got)
		}
		if got := missing(r); !slices.Equal(got, []string{"z:27017"}) {
			t.Errorf("not measured: %v, want z", got)
		}
		if s := found(t, r, "y:27017"); !holds(200*time.Millisecond, s.Offset, s.Bound) {
			t.Errorf("y: %v", s)
		}
		if !holds(200*time.Millisecond, r.Spread, r.SpreadBound) {
			t.Errorf("the spread is %v ± %v, want 200ms", r.Spread, r.SpreadBound)
		}
	}, "x:27017", "y:27017")
}

// A client may spread the samples over several routers. Samples of different routers are never combined, even if the
// routers' clocks are so close that the intervals would meet.
func TestRoutersAreKeptApart(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		hosts := []string{"x:27017", "y:27017", "z:27017"}
		offsets := make(map[string]time.Duration)
		for i, addr := range hosts {
			offsets[addr] = time.Duration(i) * 400 * time.Microsecond
			process := bson.NewObjectID()
			c.servers[addr].clock = ahead(offsets[addr])
			c.servers[addr].says = func() bson.D { // gives each server a name, which tells the test who answered
				return bson.D{e("msg", "isdbgrid"), e("me", addr), e("topologyVersion", bson.D{e("processId", process), e("counter", int64(0))})}
			}
		}
		client := connect(t, c.options(hosts...))
		time.Sleep(time.Second) // until the client has found all routers
		for range 20 {
			r := check(t, client, nil)
			asked := 0
			for _, addr := range hosts {
				asked += len(c.received(addr))
			}
			if asked > 4*8 {
				t.Errorf("%d commands were sent, want at most %d", asked, 4*8)
			}
			if want := offsets[r.Servers[0].Addr]; !holds(want, r.Servers[0].Offset, r.Servers[0].Bound) {
				t.Errorf("%v, want %v", r, want)
			}
		}
	}, "x:27017", "y:27017", "z:27017")
}

func TestStandalone(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				c.servers["db:27017"].clock = ahead(-300 * time.Millisecond)
				opt := &clockcheck.Options{}
				want := ""
				if all {
					opt.Servers, want = c.options("db:27017"), "db:27017"
				}
				r := check(t, connect(t, c.options("db:27017")), opt)
				if len(r.Servers) != 1 || r.Servers[0].Addr != want || r.Servers[0].Err != nil || r.Spread != 0 || r.SpreadBound != 0 {
					t.Errorf("got %+v, want the one server", r)
				}
				if !holds(-300*time.Millisecond, r.Servers[0].Offset, r.Servers[0].Bound) {
					t.Errorf("%v, want 300ms ahead", r)
				}
			}, "db:27017")
		})
	}
}

// After a fail-over during the check, another server answers. Its samples are not combined with the first server's.
func TestFailoverDuringCheck(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		first, second := standalone(), standalone()
		n := 0
		f := c.servers["db:27017"]
		f.out = func() time.Duration { n++; return 0 }
		f.says = func() bson.D {
			if n > 4 {
				return second()
			}
			return first()
		}
		f.clock = func() time.Time {
			if n > 4 {
				return time.Now().Add(time.Minute)
			}
			return time.Now()
		}
		r := check(t, connect(t, c.options("db:27017")), &clockcheck.Options{NoLimit: true})
		if !holds(time.Minute, r.Servers[0].Offset, r.Servers[0].Bound) || r.Servers[0].Samples != 8 || len(c.received("db:27017")) != 12 {
			t.Errorf("got %+v, want eight samples of the second server after four of the first", r)
		}
	}, "db:27017")
}
