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

// hesitation is what it may take a new client to be ready: once in some thousand
// runs it was half a second more than usual, which is the driver's shortest time
// between two looks at a server. Why it looks twice is not known.
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
