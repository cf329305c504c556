package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	repeats     = 30 // of each measurement, unless the time runs out
	warmUps     = 2  // these are not measured
	measureTime = 5 * time.Second
)

// checkLatency measures with two sessions, each with a client of its own, as two processes would have.
func (e *exam) checkLatency(ctx context.Context) finding {
	if e.store == nil {
		return untried("probe")
	}
	var sessions [2]*dsync.Session
	var mutexes [2]*dsync.Mutex
	key := "leasehold-doctor/" + e.id
	e.wrote = append(e.wrote, "k/"+key)
	defer func() { e.close(ctx, sessions[:]) }()
	for i := range sessions {
		s, err := e.session(ctx)
		if err != nil {
			return e.failed(err)
		}
		sessions[i], mutexes[i] = s, s.Mutex(key)
	}
	// After a third of the time, or measureTime, a measurement begins no other round. If that was too short for all warm-ups,
	// they count, too.
	begin, part := time.Now(), min(e.target.timeout/3, measureTime)
	late := func(parts time.Duration) bool { return time.Since(begin) > parts*part }
	var writes, locks, handOffs []time.Duration
	var err error
	for i := 0; err == nil && i < warmUps+repeats && !late(1); i++ {
		if i == warmUps {
			writes, locks = nil, nil
		}
		began := time.Now()
		err = cmp.Or(e.write(ctx), e.write(ctx))
		wrote := time.Now()
		if err = cmp.Or(err, lockAndUnlock(ctx, mutexes[0])); err == nil {
			writes, locks = append(writes, wrote.Sub(began)), append(locks, time.Since(wrote))
		}
	}
	var hold *dsync.Hold
	if err == nil {
		hold, err = mutexes[0].Hold(ctx)
	}
	for i := 0; err == nil && i < warmUps+repeats && !late(2); i++ {
		if i == warmUps {
			handOffs = nil
		}
		var took time.Duration
		if hold, took, err = handOff(ctx, admin.New(sessions[0]), hold, mutexes[(i+1)%2]); err == nil {
			handOffs = append(handOffs, took)
		}
	}
	if hold != nil {
		err = cmp.Or(err, hold.Release(ctx))
	}
	if err != nil && (len(locks) == 0 || !timedOut(err)) {
		return e.failed(err)
	}
	f := found("Lock and Unlock %s, a hand-off %s, two plain majority writes %s", spans(locks), spans(handOffs), spans(writes))
	switch limit := min(e.target.ttl/6, 5*time.Second); {
	case percentile(locks, 99) > limit:
		f = f.advise(levelWarn, "find out why the server is slow, or use a longer TTL: an attempt may take %v", limit)
	case len(handOffs) == 0:
		f = f.advise(levelWarn, "see the checks rights and notices: without a notice, a waiter learns of a release from its next poll")
	}
	for name, d := range map[string][]time.Duration{"lock": locks, "hand_off": handOffs, "writes": writes} {
		if len(d) > 0 {
			f = f.with(name+"_p50_ms", statusjson.Milliseconds(percentile(d, 50))).with(name+"_p99_ms", statusjson.Milliseconds(percentile(d, 99)))
		}
	}
	return f.with("repeats", len(locks))
}

// close closes the sessions, even if ctx has ended.
func (e *exam) close(ctx context.Context, sessions []*dsync.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range sessions {
		if s == nil {
			continue
		}
		if id := s.ID(); id != "" {
			e.wrote = append(e.wrote, "s/"+id)
		}
		all.Go(func() { s.Close(ctx) }) // if it fails, checkLeft deletes its record all the same
	}
	all.Wait()
}

func lockAndUnlock(ctx context.Context, m *dsync.Mutex) error {
	h, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

// handOff has m wait for the key of h, and then releases h. It returns the hold of m, and the time from the release to
// the grant.
func handOff(ctx context.Context, inspector *admin.Inspector, h *dsync.Hold, m *dsync.Mutex) (next *dsync.Hold, took time.Duration, err error) {
	type grant struct {
		h   *dsync.Hold
		at  time.Time
		err error
	}
	granted := make(chan grant, 1)
	go func() {
		h, err := m.Hold(ctx)
		granted <- grant{h, time.Now(), err}
	}()
	for {
		st, err := inspector.Status(ctx, h.Key())
		if err != nil {
			return nil, 0, err
		}
		if st.Waiting > 0 {
			break
		}
		select {
		case g := <-granted:
			return nil, 0, fmt.Errorf("a wait ended before the release: %w", g.err)
		case <-time.After(time.Millisecond):
		}
	}
	began := time.Now()
	if err := h.Release(ctx); err != nil {
		return nil, 0, err
	}
	g := <-granted
	return g.h, g.at.Sub(began), g.err
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*p/100]
}

func spans(d []time.Duration) string {
	if len(d) == 0 {
		return "not measured in time"
	}
	return fmt.Sprintf("%s (p99 %s)", span(percentile(d, 50)), span(percentile(d, 99)))
}

// checkLeft deletes what this run has written. Its sessions are closed by now, and its key is used by nobody else, so
// this frees no lock.
func (e *exam) checkLeft(ctx context.Context) finding {
	var r struct{ N int }
	err := e.command(ctx, e.target.db, bson.D{
		{Key: "delete", Value: e.target.collection},
		{Key: "deletes", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: e.wrote}}}}}, {Key: "limit", Value: 0},
		}}},
		{Key: "writeConcern", Value: e.concern()},
	}, &r)
	if err != nil {
		ids, _ := json.Marshal(slices.Compact(slices.Sorted(slices.Values(e.wrote))))
		f := finding{Found: fmt.Sprintf("could not delete this run's records in %s: %s", e.namespace(""), cutMiddle(oneLine(err), longestError))}
		if e.store == nil {
			f.Found += `; the probe may have left others, {_id: /^p\//}`
		}
		return f.
			advise(levelWarn, `db.getSiblingDB(%q).getCollection(%q).deleteMany({_id: {$in: %s}}), or leave them to the sweep of a process with the right to remove, in a week`,
				e.target.db, e.target.collection, ids)
	}
	f := found("records removed: %d", r.N)
	if e.hello.MongoDB() && e.store != nil {
		f.Found += "; the record of the probe stays, as after any Open"
	}
	after, _ := e.collections(ctx)
	if made := slices.DeleteFunc(after, func(name string) bool { return slices.Contains(e.before, name) }); len(made) > 0 {
		slices.Sort(made)
		f.Found += "; created, as any process would: " + strings.Join(made, ", ")
	}
	return f.with("removed", r.N)
}
