package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// judge checks the history. If the test has failed or -nemesis.dir is set, it stores the history so that people can
// inspect it.
func (n *nemesis) judge(took time.Duration) {
	t := n.t
	h, err := history.Read(n.dir)
	noErr(t, err)
	found := history.Check(h, nemesisGrace(n.ttl), n.room.Skew)
	for _, v := range found {
		t.Error(v)
	}
	table := n.table(h, took, len(found))
	t.Log("\n" + table)
	lab.Note(t, "seed %d, %v: %s", n.seed, took.Round(time.Second), n.summary(h, len(found)))

	dir := *nemesisDir
	if dir == "" {
		if !t.Failed() {
			return
		}
		if dir, err = os.MkdirTemp("", "leasehold-nemesis-"); err != nil {
			t.Fatal(err)
		}
	}
	noErr(t, os.MkdirAll(dir, 0o755))
	base := filepath.Join(dir, fmt.Sprintf("nemesis-%s-%d", n.name, n.seed))
	files := map[string]func(io.Writer) error{
		".jsonl": h.Write,
		".html":  func(w io.Writer) error { return h.Page(w, nemesisGrace(n.ttl), found) },
		".txt":   func(w io.Writer) error { _, err := io.WriteString(w, table); return err },
	}
	for suffix, write := range files {
		if err := writeFile(base+suffix, write); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s.html, .jsonl and .txt", base)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// faults returns the number of faults. A message that a lossy link did not pass unchanged counts as a fault.
func (n *nemesis) faults() int {
	sum := int(n.messages.Load())
	for _, c := range n.counts {
		sum += c
	}
	return sum
}

func (n *nemesis) summary(h *history.History, violations int) string {
	c := h.Counts()
	return fmt.Sprintf("%d faults, %d calls, %d grants, %d lost, %d violations", n.faults(), c.Calls, c.Grants, c.Lost, violations)
}

// table returns a table of what the clients did and what happened to them.
func (n *nemesis) table(h *history.History, took time.Duration, violations int) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(what string, n any) { fmt.Fprintf(w, "%s\t%v\n", what, n) }
	row("server", n.room.Server)
	row("seed", n.seed)
	row("lasted", took.Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(n.counts)) {
		row("fault: "+what, n.counts[what])
	}
	row("fault: message lost or late", n.messages.Load())
	row("faults", n.faults())
	row("rollbacks", n.rollbacks)
	c := h.Counts()
	row("calls that request", c.Calls)
	row("grants", c.Grants)
	row("hand-offs to another process", c.HandOffs)
	row("leaderships transferred", c.Transfers)
	row("holds lost", c.Lost)
	row("fenced writes", c.Writes)
	row("fenced writes refused", c.Refused)
	row("violations", violations)
	w.Flush()
	return b.String()
}

// watch repeatedly records each key's state in the store until ctx ends.
func (n *nemesis) watch(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		for _, key := range nemesisKeys() {
			if st, err := n.load(ctx, key); err == nil {
				e := history.Event{Type: history.Record, Key: key, Token: st.Token, Term: st.Term, Limit: st.Limit}
				for _, h := range st.Holders {
					e.Holders = append(e.Holders, history.Claim{ID: h.Claim, Token: h.Token, Weight: h.Weight})
				}
				for _, w := range st.WaitersAhead {
					e.Waiting = append(e.Waiting, w.Claim)
				}
				n.rec.Put(e)
			}
			time.Sleep(n.ttl / 100)
		}
		if i%30 == 29 {
			n.logs(ctx)
		}
	}
}

func (n *nemesis) load(ctx context.Context, key string) (driver.State, error) {
	ctx, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	return n.store.Load(ctx, key, 1000)
}

// logs records the documents' own logs of their writes.
func (n *nemesis) logs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	cur, err := n.docs.Find(ctx, bson.D{})
	if err != nil {
		return // the server may have a fault
	}
	var docs []struct {
		Key string  `bson:"_id"`
		Log []int64 `bson:"log"`
	}
	if cur.All(ctx, &docs) != nil {
		return
	}
	for _, d := range docs {
		n.rec.Put(history.Event{Type: history.Log, Key: d.Key, Tokens: d.Log})
	}
}

// clean checks that every key can be acquired, that afterwards no key has a holder or a waiter, and that no session is
// alive. It also checks that a sweep leaves only the records of the keys, of the sweep's progress and of the probe.
func (n *nemesis) clean() {
	t := n.t
	s := n.room.session(n.room.short(n.ttl))
	e, err := leader.New(s, nemesisLeader, nil)
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+10*n.ttl)
	defer cancel()
	nothing := func(context.Context) error { return nil }
	turns := []func() error{
		func() error { return s.RWMutex(nemesisRW).Do(ctx, nothing) },
		func() error {
			h, err := s.Semaphore(nemesisSem, seats).Hold(ctx, seats)
			if err != nil {
				return err
			}
			return h.Release(ctx)
		},
		func() error {
			if _, err := e.Campaign(ctx); err != nil {
				return err
			}
			return e.Resign(ctx)
		},
	}
	for _, key := range nemesisMutexes {
		turns = append(turns, func() error { return s.Mutex(key).Do(ctx, nothing) })
	}
	for _, turn := range turns {
		if err := turn(); err != nil {
			t.Errorf("after all clients have ended: %v", err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	eventually(t, "nobody holds a key or waits for it", func() bool {
		for _, key := range nemesisKeys() {
			if st, err := n.load(ctx, key); err != nil || len(st.Holders) > 0 || st.Waiting > 0 {
				return false
			}
		}
		return true
	})
	var now time.Time
	eventually(t, "no session is alive", func() bool {
		var alive []driver.Member
		alive, now, err = storecmd.Members(ctx, n.store)
		return err == nil && len(alive) == 0
	})
	// On a server that is not MongoDB, a process creates a record before its Register. For an
	// hour, Sweep keeps such a record even if the Register never comes. Make such records
	// look two hours old.
	made := bson.D{
		{Key: "_id", Value: bson.D{{Key: "$gte", Value: "s/"}, {Key: "$lt", Value: "s0"}}},
		{Key: "ttl", Value: bson.D{{Key: "$exists", Value: false}}},
	}
	ago := bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: now.Add(-2 * time.Hour)}}}}
	if _, err := n.room.raw().UpdateMany(ctx, made, ago); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50*time.Millisecond + n.room.Skew) // wait until the records are some milliseconds old by every router's clock
	sweep(t, n.store, time.Millisecond)
	cur, err := n.room.raw().Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	noErr(t, err)
	var left []struct {
		ID string `bson:"_id"`
	}
	noErr(t, cur.All(ctx, &left))
	for _, record := range left {
		if key, ok := strings.CutPrefix(record.ID, "k/"); record.ID != sweepRecord && !isProbeRecord(record.ID) && (!ok || !slices.Contains(nemesisKeys(), key)) {
			t.Errorf("record %q is left after a sweep of everything idle", record.ID)
		}
	}
}
