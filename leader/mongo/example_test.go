package mongo_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
	leadermongo "github.com/leasehold-go/leasehold/leader/mongo"
)

// The examples need a server, so they are compiled but not run.

func ExampleOpen() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()

	election, err := leadermongo.Open(ctx, client.Database("app"), "scheduler", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = election.Close(ctx) }()

	term, err := election.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("this process schedules until the term ends")
	<-term.Done()
}

func ExampleConnect() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	election, err := leadermongo.Connect(ctx,
		options.Client().ApplyURI("mongodb://localhost:27017"), "app", "scheduler",
		&leadermongo.Options{
			Election: leader.Options{Value: []byte("10.0.0.7:8080")}, // others read it with Leader or Observe
			Store:    dsyncmongo.Options{Session: dsync.Options{TTL: 10 * time.Second}},
		})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = election.Close(context.Background()) }() // ctx has ended by then

	err = election.Run(ctx, func(ctx context.Context) error {
		fmt.Println("this process schedules")
		<-ctx.Done() // until the leadership is lost, or SIGTERM
		return ctx.Err()
	})
	log.Print(err)
}

// Groups, other elections and locks are made on the election's session.
func ExampleElection_Session() {
	ctx := context.Background()
	election, err := leadermongo.Connect(ctx,
		options.Client().ApplyURI("mongodb://localhost:27017"), "app", "scheduler", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = election.Close(ctx) }()

	jobs, _, err := leader.NewGroup(ctx, election.Session(), "jobs", nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"mails", "reports"} {
		_, err := jobs.Go(name, func(ctx context.Context) error {
			fmt.Println(name, "run on this process")
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	log.Print(jobs.Wait())
}
