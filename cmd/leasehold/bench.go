package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// oneLimit is how long one of what is measured may take before there is no more to say.
const oneLimit = time.Minute

// A benchJSON is what was measured, for programs: see bench's help.
type benchJSON struct {
	Measure string  `json:"measure"`
	Count   int     `json:"count"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Slowest float64 `json:"slowest_ms"`
}

// A verdictJSON is the last line of a bench for programs.
type verdictJSON struct {
	Good     bool    `json:"good"`
	Pushed   bool    `json:"pushed"`
	TTL      float64 `json:"ttl_ms"`
	Least    float64 `json:"least_ttl_ms"`
	Survives float64 `json:"failover_ttl_ms"`
	Spread   float64 `json:"spread_ms"`
	Verdict  string  `json:"verdict"`
}

// newBench returns the command bench.
func newBench(a *app) *cobra.Command {
	var asJSON bool
	var count int
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure whether a server is good enough",
		Long: `Measure how long a majority write takes, a Lock with its Unlock, and a hand-over:
from one session's Unlock until another, which stood in line, has the lock. Say which
TTL that carries: --ttl, or another. An attempt to send a heartbeat may take a sixth of
the TTL, and must have twice the time that the slowest write took here; the margin, a
tenth of the TTL up to 500ms, must exceed what the servers' clocks are apart.

All is done in a collection of its own, --collection with _bench_ and an id behind it,
which is dropped at the end. That takes the right to create and drop it (readWrite on
the database has it). How it is when the server is busy only a bench at that time tells.

It exits with 0 if the TTL can be carried, and with 118 if not. With --json each line is
an object with measure, count, p50_ms, p99_ms and slowest_ms; the last has good, pushed
(grants are, else waiters poll), ttl_ms, least_ttl_ms, failover_ttl_ms (the least with
which locks survive a fail-over; 0: there is none), spread_ms and verdict.`,
		Example: `  leasehold bench
  leasehold bench --ttl 5s --count 1000`,
		Args: arguments(0, 0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || count > 1_000_000 {
				return usagef("--count is %d; it must be 1 to 1000000", count)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.bench(ctx, count, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, an object per measure and line")
	c.Flags().IntVar(&count, "count", 200, "how many writes, and Locks with Unlock; a tenth as many hand-overs")
	return c
}

func (a *app) bench(ctx context.Context, count int, asJSON bool) error {
	opt := dsync.Options{TTL: a.target.ttl, Name: a.target.name, App: "leasehold bench", Turn: -1}
	if err := checkOptions(opt); err != nil {
		return err
	}
	return a.ask(ctx, func(t target, db *mongo.Database) error { return a.benchOn(ctx, t, db, opt, count, asJSON) })
}

func (a *app) benchOn(ctx context.Context, t target, db *mongo.Database, opt dsync.Options, count int, asJSON bool) (err error) {
	scratch := db.Collection(t.collection + "_bench_" + bson.NewObjectID().Hex())
	first, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	var hello struct {
		SetName string `bson:"setName"`
	}
	if err := db.RunCommand(first, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return t.unreached(err) // nothing is made, and nothing to be dropped
	}
	var sessions [2]*dsync.Session
	defer func() {
		for _, s := range sessions {
			if s != nil {
				err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
			}
		}
		if sessions[0] == nil {
			drop(ctx, scratch) // in case there is anything; that Open has failed is said already
			return
		}
		err = failed(errors.Join(err, drop(ctx, scratch)))
	}()
	for i := range sessions {
		sessions[i], err = dsyncmongo.Open(first, db, &dsyncmongo.Options{Collection: scratch.Name(), Options: opt})
		if err != nil {
			return t.unreached(err)
		}
	}
	b := bench{scratch: scratch, a: sessions[0], b: sessions[1]}
	pushed, err := b.pushed(first)
	if err != nil {
		return t.unreached(err)
	}
	slowest, err := b.run(ctx, a, count, asJSON)
	if err != nil {
		return t.unreached(err)
	}
	r, err := clockcheck.Check(ctx, db.Client(), &clockcheck.Options{NoLimit: true, Servers: t.options(), Timeout: t.timeout})
	if err != nil {
		return t.unreached(err)
	}
	v := verdict{ttl: a.target.ttl, write: slowest, spread: r.Spread + r.SpreadBound, set: hello.SetName != ""}
	return a.printVerdict(v, pushed, asJSON)
}

func (a *app) printVerdict(v verdict, pushed, asJSON bool) error {
	if asJSON {
		err := printJSON(a.stdout, verdictJSON{v.good(), pushed, milliseconds(v.ttl), milliseconds(v.least()),
			milliseconds(v.survives()), milliseconds(v.spread), v.String()})
		if err != nil {
			return err
		}
	} else {
		how := "grants are pushed"
		if !pushed {
			how = "there is no change stream: who waits polls every 250ms"
		}
		if _, err := fmt.Fprintf(a.stdout, "\n%s; %s\n", v, how); err != nil {
			return err
		}
	}
	if !v.good() {
		return &failure{exitBench, errors.New(v.String())}
	}
	return nil
}

// drop drops the collection that a bench has made, if it has.
func drop(ctx context.Context, c *mongo.Collection) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := c.Drop(ctx); err != nil {
		return fmt.Errorf("the collection %s could not be dropped; please do: %w", c.Name(), err)
	}
	return nil
}

// A bench measures two sessions on a collection.
type bench struct {
	scratch *mongo.Collection
	a, b    *dsync.Session
}

// run measures, prints what it has measured, and returns the slowest majority write.
func (b *bench) run(ctx context.Context, a *app, count int, asJSON bool) (write time.Duration, err error) {
	t := newTable(a.stdout, "MEASURE", "COUNT", "P50", "P99", "SLOWEST")
	mu, turn := b.a.Mutex("lock"), 0
	for _, m := range []struct {
		name  string
		count int
		once  func(context.Context) (time.Duration, error)
	}{
		{"majority write", count, b.write},
		{"Lock and Unlock", count, func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			err := mu.LockContext(ctx)
			if err == nil {
				err = mu.UnlockContext(ctx)
			}
			return time.Since(begin), err
		}},
		{"hand-over", max(1, count/10), func(ctx context.Context) (time.Duration, error) {
			turn++
			if turn%2 == 0 {
				return handOver(ctx, b.a, b.b)
			}
			return handOver(ctx, b.b, b.a)
		}},
	} {
		var all timings
		for i := range m.count + 1 {
			limited, cancel := context.WithTimeout(ctx, oneLimit)
			took, err := m.once(limited)
			cancel()
			if err != nil {
				return 0, err
			}
			if i > 0 { // the first makes connections and records
				all = append(all, took)
			}
		}
		if m.name == "majority write" {
			write = all.slowest()
		}
		if asJSON {
			err = printJSON(a.stdout, benchJSON{m.name, len(all), milliseconds(all.percentile(0.5)), milliseconds(all.percentile(0.99)), milliseconds(all.slowest())})
		} else {
			err = t.add(m.name, fmt.Sprint(len(all)), span(all.percentile(0.5)), span(all.percentile(0.99)), span(all.slowest()))
		}
		if err != nil {
			return 0, err
		}
	}
	if asJSON {
		return write, nil
	}
	return write, t.flush()
}
