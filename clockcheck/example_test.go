package clockcheck_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A program that timestamps its data with its host's clock refuses to run if that clock is off.
// Here, fake servers with clocks an hour ahead stand in for a replica set; a real program makes its
// options from its connection string.
func Example() {
	servers := newCluster("db1:27017", "db2:27017")
	defer servers.close()
	servers.set("rs", "db1:27017", "db2:27017")
	for _, s := range servers.servers {
		s.clock = func() time.Time { return time.Now().Add(time.Hour) }
	}
	opt := servers.options("db1:27017", "db2:27017").SetReplicaSet("rs")

	ctx := context.Background()
	client, err := mongo.Connect(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Disconnect(ctx) }()

	result, err := clockcheck.Check(ctx, client, &clockcheck.Options{
		Limit:   2 * time.Second,
		Servers: opt, // every server that can become primary
	})
	var found *clockcheck.Error
	if errors.As(err, &found) && found.Kind == clockcheck.ErrOffset {
		fmt.Printf("%v behind, the limit is %v\n", found.Offset.Round(time.Minute), found.Limit)
	}
	fmt.Println(len(result.Servers), "servers,", result.Spread.Round(time.Minute), "apart")
	// Output:
	// 1h0m0s behind, the limit is 2s
	// 2 servers, 0s apart
}

// A server that can't be reached does not fail the check. A program that needs to know about such servers looks at
// each server's Err.
func ExampleServer() {
	servers := newCluster("db1:27017", "db2:27017")
	defer servers.close()
	servers.set("rs", "db1:27017", "db2:27017")
	servers.servers["db2:27017"].down = true
	opt := servers.options("db1:27017").SetReplicaSet("rs")

	ctx := context.Background()
	client, err := mongo.Connect(opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Disconnect(ctx) }()

	result, err := clockcheck.Check(ctx, client, &clockcheck.Options{Servers: opt})
	if err != nil {
		fmt.Println(err)
	}
	for _, s := range result.Servers {
		if s.Err != nil {
			fmt.Println(s.Addr, "was not measured")
			continue
		}
		fmt.Println(s.Addr, "is", s.Offset.Round(time.Minute), "ahead")
	}
	// Output:
	// db1:27017 is 0s ahead
	// db2:27017 was not measured
}

// A process stops its work when the monitor reports that the host's clock is beyond the limit.
func ExampleMonitor() {
	server := newCluster("db1:27017")
	defer server.close()
	client, err := mongo.Connect(server.options("db1:27017"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = client.Disconnect(ctx) }()

	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	reports, err := clockcheck.Monitor(work, client, time.Second, &clockcheck.Options{Limit: 2 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range reports { // until the monitor has ended
		if errors.Is(r.Err, clockcheck.ErrOffset) {
			stop(r.Err)
			continue
		}
		fmt.Println("the clock is right:", len(r.Result.Servers), "server")
		// Somebody sets the server's clock.
		server.change(func() { server.servers["db1:27017"].clock = func() time.Time { return time.Now().Add(-time.Hour) } })
	}
	fmt.Println("stopped:", errors.Is(context.Cause(work), clockcheck.ErrOffset))
	// Output:
	// the clock is right: 1 server
	// stopped: true
}

// A program logs what is wrong when the check fails.
func ExampleError() {
	server := newCluster("db1:27017")
	defer server.close()
	server.servers["db1:27017"].clock = func() time.Time { return time.Now().Add(-time.Hour) }
	client, err := mongo.Connect(server.options("db1:27017"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = client.Disconnect(ctx) }()

	_, err = clockcheck.Check(ctx, client, nil)
	var found *clockcheck.Error
	switch {
	case !errors.As(err, &found):
		fmt.Println(err) // nil, or why nothing was measured
	case found.Kind == clockcheck.ErrStepped && found.Host:
		fmt.Printf("the host slept, or its clock was stepped by %v: check again\n", found.Step)
	case found.Kind == clockcheck.ErrStepped:
		fmt.Printf("the clock of %s was stepped by %v: check again\n", found.Server, found.Step)
	case found.Kind == clockcheck.ErrUndecided:
		fmt.Printf("the network is too slow to tell: ±%v\n", found.Bound)
	default:
		fmt.Printf("off by %v, more than %v\n", found.Offset.Round(time.Minute), found.Limit)
	}
	// Output: off by -1h0m0s, more than 500ms
}

// A tool shows the clocks without judging them. Its DriftRate allows for a host that has just started, whose clock
// chrony may still slew by as much as 8.3 %.
func ExampleOptions() {
	server := newCluster("db1:27017")
	defer server.close()
	client, err := mongo.Connect(server.options("db1:27017"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = client.Disconnect(ctx) }()

	result, err := clockcheck.Check(ctx, client, &clockcheck.Options{NoLimit: true, DriftRate: 0.083})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range result.Servers {
		clock := s.At.Add(s.Offset) // what the server's clock showed at s.At, ± s.Bound
		fmt.Println(clock.Sub(s.At).Round(time.Minute), "ahead, by", s.Samples, "answers")
	}
	// Output: 0s ahead, by 8 answers
}
