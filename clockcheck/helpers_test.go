package clockcheck_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// bubble runs f in a bubble, with a cluster of servers at the addresses, which ends
// with it.
func bubble(t *testing.T, f func(t *testing.T, c *cluster), addrs ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(addrs...)
		t.Cleanup(c.close)
		f(t, c)
	})
}

// connect returns a client that ends with the test.
func connect(t testing.TB, opt *options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Without a deadline, with which the driver waits in a busy loop (v2.9.3,
		// pool.close) that a bubble never gets out of.
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// ahead is a clock that is d ahead of the host's.
func ahead(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// hesitation is how much later than usual a new client may be ready. The driver registers
// an operation that waits for a server after it has read which servers there are
// (v2.9.3, Topology.Subscribe), so a server found between the two is not seen before the
// next look at it, half a second later. That happens once in some thousand runs.
const hesitation = 510 * time.Millisecond

// always is a delay.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// holds reports whether the truth is within the bound.
func holds(truth, offset, bound time.Duration) bool { return (truth - offset).Abs() <= bound }

func check(t testing.TB, client *mongo.Client, opt *clockcheck.Options) clockcheck.Result {
	t.Helper()
	r, err := clockcheck.Check(t.Context(), client, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
