package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A Sweeping is the cost of sweeping a store.
type Sweeping struct {
	Slices        Sample // the time for each slice
	Seen, Deleted int64
	Commands      int
}

// Sweep makes n keys with random names, two in nine of them idle, and sweeps once. Two in nine is
// the share of idle keys if a round of sweeping takes a quarter of the retention. The target must
// be a server, Counted, and empty.
func Sweep(ctx context.Context, t *Target, n int) (Sweeping, error) {
	if t.DB == nil {
		return Sweeping{}, errors.New("measure: Sweep needs a server, not the store in memory")
	}
	store, end, err := t.Shared(ctx, 0)
	if err != nil {
		return Sweeping{}, err
	}
	defer end()
	var records [2]bson.D // an idle key's record and an election's, which is never idle because it counts terms
	for i, kind := range []driver.Kind{driver.KindMutex, driver.KindElection} {
		c := driver.Claim{Key: string(kind), ID: "s.1", Session: "s", Kind: kind, Weight: 1, Limit: 1}
		if _, _, err := storecmd.Acquire(ctx, store, c, false, nil, time.Now().Add(time.Hour)); err != nil {
			return Sweeping{}, err
		}
		if _, _, err := storecmd.Release(ctx, store, c, driver.Release{}); err != nil {
			return Sweeping{}, err
		}
		if err := t.DB.Collection("leasehold").FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + c.Key}}).Decode(&records[i]); err != nil {
			return Sweeping{}, err
		}
	}
	var copies []any
	for i := range n {
		record := records[1]
		if i%9 < 2 {
			record = records[0]
		}
		copies = append(copies, append(bson.D{{Key: "_id", Value: "k/order " + rand.Text()}}, record[1:]...))
	}
	all := t.DB.Collection("leasehold", options.Collection().SetWriteConcern(writeconcern.Majority())) // Sweep reads majority-committed records
	if _, err := all.InsertMany(ctx, copies, options.InsertMany().SetOrdered(false)); err != nil {
		return Sweeping{}, err
	}
	time.Sleep(10 * time.Millisecond) // until all tokens are older than the retention of a millisecond

	var s Sweeping
	before := t.Commands()
	for st := (driver.SweepState{}); st.Turn == 0 || st.After != ""; {
		begin := time.Now()
		if st, err = store.Sweep(ctx, "bench", st, time.Millisecond); err != nil {
			return Sweeping{}, err
		}
		s.Slices = append(s.Slices, time.Since(begin))
		s.Seen, s.Deleted = s.Seen+st.Seen, s.Deleted+st.Deleted
	}
	s.Commands = t.Commands() - before
	if want := int64(n * 2 / 9); s.Deleted < want {
		return Sweeping{}, errors.New("measure: Sweep did not delete all idle keys")
	}
	return s, nil
}

// Total returns how long all slices took together.
func (s Sweeping) Total() (d time.Duration) {
	for _, took := range s.Slices {
		d += took
	}
	return d
}
