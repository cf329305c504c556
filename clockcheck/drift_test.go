package clockcheck_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// fast is a clock that runs away from the host's by that fraction, from d ahead on.
func fast(d time.Duration, by float64) func() time.Time {
	begin := time.Now()
	return func() time.Time {
		passed := time.Since(begin)
		return begin.Add(d + passed + time.Duration(by*float64(passed)))
	}
}

// The bound of the spread is for the moment when the last server had answered: those
// that had answered earlier may have drifted apart since.
func TestSpreadHoldsWhileOthersAreSlow(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.set("rs", "a:27017", "b:27017", "slow:27017")
		a, b := fast(5*time.Second, 0.04), fast(-5*time.Second, -0.04)
		c.servers["a:27017"].clock, c.servers["b:27017"].clock = a, b
		c.servers["slow:27017"].out = always(500 * time.Millisecond)
		start := time.Now()
		r := check(t, connect(t, c.options("a:27017")), &clockcheck.Options{
			NoLimit: true, DriftRate: 0.05, Servers: c.options("a:27017", "b:27017", "slow:27017"),
		})
		if took := time.Since(start); took < 4*time.Second || len(r.Servers) != 3 {
			t.Fatalf("measured %d servers in %v, want 3, one of them slowly", len(r.Servers), took)
		}
		if truth := a().Sub(b()); !holds(truth, r.Spread, r.SpreadBound) {
			t.Errorf("%v ± %v, the truth is %v", r.Spread, r.SpreadBound, truth)
		}
	}, "a:27017", "b:27017", "slow:27017")
}

// The bound of a server's offset is for the end of the measuring, though its own last
// sample is older, since others were met behind the same name.
func TestOffsetHoldsAfterTheLastSample(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		f := c.servers["db:27017"]
		client := connect(t, c.options("db:27017"))
		if err := client.Ping(t.Context(), nil); err != nil { // waits for the hesitation
			t.Fatal(err)
		}
		begin, first, clock := time.Now(), bson.NewObjectID(), fast(0, 0.08)
		f.out, f.clock = always(50*time.Millisecond), clock
		f.says = func() bson.D {
			process := first
			if time.Since(begin) > 300*time.Millisecond {
				process = bson.NewObjectID() // each met once
			}
			return bson.D{e("isWritablePrimary", true), e("me", "db:27017"), e("setName", "rs"), e("hosts", bson.A{"db:27017"}),
				e("topologyVersion", bson.D{e("processId", process), e("counter", int64(0))})}
		}
		r := check(t, client, &clockcheck.Options{NoLimit: true, DriftRate: 0.09})
		if n := r.Servers[0].Samples; n < 3 || n > 7 {
			t.Fatalf("the result is of %d samples, want those of the first server alone", n)
		}
		if took := time.Since(begin); took < time.Second {
			t.Fatalf("took %v, want that others were met", took)
		}
		if truth := time.Until(clock()); !holds(truth, r.Offset, r.Bound) {
			t.Errorf("%v ± %v, the truth is %v", r.Offset, r.Bound, truth)
		}
	}, "db:27017")
}
