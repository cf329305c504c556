package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold/adapters/clientgo"
	leadermongo "github.com/leasehold-go/leasehold/leader/mongo"
)

// A controller's work runs in the process that leads. The example needs a server, so it is compiled
// but not run.
func Example() {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	lock, err := clientgo.New(client.Database("app"), "controller", nil)
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context) { <-ctx.Done() }
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   20 * time.Second, // more than RenewDeadline + RetryPeriod + 3 · Options.Timeout
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work,
			OnStoppedLeading: func() { log.Print("not the leader any more") },
			OnNewLeader:      func(identity string) { log.Print("the leader is ", identity) },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	elector.Run(context.Background())
}

// A controller in a pod uses client-go's usual LeaseDuration of 15 s, and records its leadership as events about the
// pod. The example is compiled but not run.
func ExampleOptions() {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}}
	var recorder resourcelock.EventRecorder // from package k8s.io/client-go/tools/record
	lock, err := clientgo.New(client.Database("app"), "controller", &clientgo.Options{
		Collection:  "controllers",
		Identity:    fmt.Sprintf("%s_%d", pod.Name, time.Now().UnixNano()), // a new one after each restart
		Timeout:     900 * time.Millisecond,
		Events:      recorder,
		EventObject: pod,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Describe(), lock.Identity())
}

// New code uses leader.Election instead: the work's context ends before another process can lead,
// and the term has a fencing token.
func Example_leader() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	election, err := leadermongo.Open(ctx, client.Database("app"), "controller", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer election.Close(ctx)
	work := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if err := election.Run(ctx, work); err != nil {
		log.Fatal(err)
	}
}
