package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// measureTimeout bounds each single measurement.
const measureTimeout = time.Minute

// A benchJSON is one measure as JSON: see bench's help.
type benchJSON struct {
	Measure string                  `json:"measure"`
	Count   int                     `json:"count"`
	P50     statusjson.Milliseconds `json:"p50_ms"`
	P99     statusjson.Milliseconds `json:"p99_ms"`
	Slowest statusjson.Milliseconds `json:"slowest_ms"`
}

// A verdictJSON is the last line of a bench for programs.
type verdictJSON struct {
	Good     bool                    `json:"good"`
	Notified bool                    `json:"notified"`
	TTL      statusjson.Milliseconds `json:"ttl_ms"`
	Least    statusjson.Milliseconds `json:"least_ttl_ms"`
	Survives statusjson.Milliseconds `json:"failover_ttl_ms"`
	Spread   statusjson.Milliseconds `json:"spread_ms"`
	Verdict  string                  `json:"verdict"`
}

// newBench returns the command bench.
func newBench(a *app) *cobra.Command {
	var asJSON bool
	var count int
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure whether a server is good enough",
		Long: `Measure how long a majority write takes, a Lock with its Unlock, and a hand-off:
from one session's Unlock until another session, which waited, has the lock. Then say
whether the server can carry --ttl, and what the shortest TTL is: an attempt to send a
heartbeat may take a sixth of the TTL, and needs twice the time of the slowest write
here; the margin, a tenth of the TTL up to 500ms, must exceed the differences between
the servers' clocks.

bench works in a collection of its own, named like --collection with _bench_ and an id
appended, and drops it at the end together with the collection of its notices. This
takes the right to create and drop them (readWrite on the database has it). The result
holds for the load at the time: run it when the server is busy, too.

It exits with 0 if the server can carry the TTL, and with 118 if not. With --json each
line is an object with measure, count, p50_ms, p99_ms and slowest_ms; the last has good,
notified (waiters are notified; if not, they poll), ttl_ms, least_ttl_ms,
failover_ttl_ms (the shortest TTL with which locks survive a fail-over; 0: there is
none), spread_ms and verdict.`,
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
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line per measure")
	c.Flags().IntVar(&count, "count", 200, "the number of writes, and of Locks with Unlock; a tenth as many hand-offs")
	return c
}

func (a *app) bench(ctx context.Context, count int, asJSON bool) error {
	opt := dsync.Options{TTL: a.target.ttl, Name: a.target.name, App: "leasehold bench", HandOffTime: -1, Logger: slog.New(slog.DiscardHandler)}
	if err := checkOptions(opt); err != nil {
		return err
	}
	return a.withDatabase(ctx, func(t target, db *mongo.Database) error { return a.benchOn(ctx, t, db, opt, count, asJSON) })
}

func (a *app) benchOn(ctx context.Context, t target, db *mongo.Database, opt dsync.Options, count int, asJSON bool) (err error) {
	scratch := db.Collection(t.collection + "_bench_" + bson.NewObjectID().Hex())
	first, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	var hello struct {
		SetName string `bson:"setName"`
	}
	if err := db.RunCommand(first, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return t.unreached(err) // nothing was created that would have to be dropped
	}
	var sessions [2]*dsync.Session
	defer func() {
		for _, s := range sessions {
			if s != nil {
				err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
			}
		}
		if sessions[0] == nil {
			drop(ctx, scratch) // in case there is anything; the error to report is that of Open
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
	slowest, err := b.run(ctx, a, count, asJSON)
	if err != nil {
		return t.unreached(err)
	}
	r, err := clockcheck.Check(ctx, db.Client(), &clockcheck.Options{NoLimit: true, Servers: t.options(), Timeout: t.timeout})
	if err != nil {
		return t.unreached(err)
	}
	v := verdict{ttl: a.target.ttl, write: slowest, spread: r.Spread + r.SpreadBound, set: hello.SetName != ""}
	return a.printVerdict(v, (*engine.Session)(b.a).Local().Listening, asJSON)
}

func (a *app) printVerdict(v verdict, notified, asJSON bool) error {
	if asJSON {
		err := printJSON(a.stdout, verdictJSON{v.good(), notified, statusjson.Milliseconds(v.ttl), statusjson.Milliseconds(v.least()),
			statusjson.Milliseconds(v.survives()), statusjson.Milliseconds(v.spread), v.String()})
		if err != nil {
			return err
		}
	} else {
		how := "waiters are notified"
		if !notified {
			how = "the server can't notify: waiters poll every 250ms"
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

// drop drops the collections that a bench has created: c, and those whose names begin
// with c's.
func drop(ctx context.Context, c *mongo.Collection) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	names, err := c.Database().ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{
		{Key: "$gte", Value: c.Name()}, {Key: "$lt", Value: c.Name() + "/"}}}}) // '/' comes after '.'
	for _, name := range names {
		err = errors.Join(err, c.Database().Collection(name).Drop(ctx))
	}
	if err != nil {
		return fmt.Errorf("the collections that begin with %s could not all be dropped; drop them by hand: %w", c.Name(), err)
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
		{"hand-off", max(1, count/10), func(ctx context.Context) (time.Duration, error) {
			turn++
			if turn%2 == 0 {
				return handOff(ctx, b.a, b.b)
			}
			return handOff(ctx, b.b, b.a)
		}},
	} {
		var all timings
		for i := range m.count + 1 {
			limited, cancel := context.WithTimeout(ctx, measureTimeout)
			took, err := m.once(limited)
			cancel()
			if err != nil {
				return 0, err
			}
			if i > 0 { // the first one opens connections and creates records
				all = append(all, took)
			}
		}
		if m.name == "majority write" {
			write = all.slowest()
		}
		if asJSON {
			err = printJSON(a.stdout, benchJSON{m.name, len(all), statusjson.Milliseconds(all.percentile(0.5)), statusjson.Milliseconds(all.percentile(0.99)), statusjson.Milliseconds(all.slowest())})
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

// write makes one majority write: every operation consists of these.
func (b *bench) write(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	var r struct {
		WriteErrors       []bson.Raw `bson:"writeErrors"`
		WriteConcernError bson.Raw   `bson:"writeConcernError"`
	}
	err := b.scratch.Database().RunCommand(ctx, bson.D{
		{Key: "update", Value: b.scratch.Name()},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: "bench"}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Decode(&r)
	if err == nil && len(r.WriteErrors)+len(r.WriteConcernError) > 0 {
		err = fmt.Errorf("majority write: %v %v", r.WriteErrors, r.WriteConcernError)
	}
	return time.Since(begin), err
}

// handOff returns the time from the Unlock of one session to the return of the other's
// Lock, which waits for it.
func handOff(ctx context.Context, from, to *dsync.Session) (time.Duration, error) {
	const key = "hand-off"
	mu, next := from.Mutex(key), to.Mutex(key)
	if err := mu.LockContext(ctx); err != nil {
		return 0, err
	}
	type result struct {
		at  time.Time
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	locked := make(chan result, 1)
	go func() {
		err := next.LockContext(ctx)
		locked <- result{time.Now(), err}
	}()
	err := awaitWaiter(ctx, from, key)
	begin := time.Now()
	if bad := mu.UnlockContext(ctx); err == nil {
		err = bad
	}
	if err != nil {
		cancel()
	}
	r := <-locked
	if r.err == nil {
		r.err = next.UnlockContext(ctx)
	}
	return r.at.Sub(begin), errors.Join(err, r.err)
}

// awaitWaiter waits until the key has a waiter. It repeats a reading that fails, because a short
// TTL may leave it too little time.
func awaitWaiter(ctx context.Context, s *dsync.Session, key string) error {
	for {
		if st, err := s.Status(ctx, key); err == nil && st.Waiting > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A verdict says whether a deployment can carry a TTL, by the rules of package dsync:
// a session sends a heartbeat every TTL/3, and an attempt may take TTL/6; the margin,
// TTL/10 up to 500 ms, must exceed the differences between the servers' clocks.
type verdict struct {
	ttl    time.Duration // of the flags
	write  time.Duration // the slowest majority write
	spread time.Duration // of the servers' clocks, its bound included
	set    bool          // a replica set: it can fail over
}

const (
	leastTTL  = time.Second
	maxMargin = 500 * time.Millisecond // the default margin of a long TTL

	// slowElection is what a replica set with default settings may take to elect a
	// new primary. Locks survive it if the TTL is half as long again.
	slowElection = 12 * time.Second
)

// least returns the shortest TTL that leaves a heartbeat twice the time of the slowest
// write, and whose margin exceeds the spread, in tenths of a second. It is 0 if there is
// none: no default margin exceeds the spread.
func (v verdict) least() time.Duration {
	if v.spread >= maxMargin {
		return 0
	}
	const tenth = 100 * time.Millisecond
	least := max(leastTTL, 6*2*v.write, 10*v.spread+time.Millisecond)
	return (least + tenth - 1).Truncate(tenth)
}

// survives returns the shortest TTL with which locks survive a fail-over as well, 0 if
// there is none.
func (v verdict) survives() time.Duration {
	if !v.set {
		return 0
	}
	return max(v.least(), slowElection*3/2)
}

// good reports whether the deployment can carry the TTL.
func (v verdict) good() bool { return v.least() != 0 && v.ttl >= v.least() }

// String is the verdict for people.
func (v verdict) String() string {
	if v.least() == 0 {
		return fmt.Sprintf("not good enough: the servers' clocks are up to %s apart, and the margin is %v by default; synchronize them with NTP", span(v.spread), maxMargin)
	}
	not := ""
	if !v.good() {
		not = "not "
	}
	text := fmt.Sprintf("%sgood enough for a TTL of %v: writes of %s, and clocks up to %s apart, need %v", not, v.ttl, span(v.write), span(v.spread), v.least())
	if s := v.survives(); s != 0 {
		text += fmt.Sprintf("; to survive a fail-over of %v takes %v", slowElection, s)
	}
	return text
}

// timings are the durations of several repetitions.
type timings []time.Duration

// percentile returns the time that a fraction p of them did not exceed.
func (t timings) percentile(p float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// slowest returns the longest.
func (t timings) slowest() time.Duration { return t.percentile(1) }
