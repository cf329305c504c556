package integration_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var guardTransactions = flag.Int("guard.transactions", 0, "how many transactions TestGuardCommitsInOrderOfTokens commits; 0: 300, 20,000 with LEASEHOLD_LONG set")

// guardedKeys is the number of keys that all children lock at the same time.
const guardedKeys = 4

// guarding is a child that repeatedly locks each key and commits some transactions under each hold. The transactions'
// context does not end with the hold, so after a freeze the child continues as if nothing had happened. After each
// Unlock it tries up to ten more transactions with its old token, until one is refused. It reports the result of each
// transaction.
func guarding(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, nil)
	client, err := mongo.Connect(options.Client().ApplyURI(a.URI))
	if err != nil {
		env.Fatal(err)
	}
	l := newLedger(client, a.DB)
	finish := make(chan struct{})
	write := func(key string, token int64, id string) (ok bool) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ev := proc.Event{Name: "committed", Key: key, Token: token, Text: id}
		err := l.guard.Transact(ctx, key, token, func(ctx context.Context) error { return l.write(ctx, key, token, id) })
		switch {
		case errors.Is(err, fence.ErrStale):
			ev.Name = "fenced"
		case err != nil:
			ev.Name, ev.Err = "failed", err.Error()
		}
		env.Emit(ev)
		return err == nil
	}
	work := func(key string) {
		m, draw := s.Mutex(key), lab.Rand(a.How, key)
		for n := 0; !closed(finish); {
			m.Lock()
			token := m.Token()
			for range 1 + draw.IntN(20) {
				n++
				write(key, token, fmt.Sprintf("%s %s %d", a.How, key, n))
			}
			m.Unlock()
			for range 10 {
				if n++; !write(key, token, fmt.Sprintf("%s %s %d late", a.How, key, n)) {
					break
				}
			}
		}
	}
	env.Emit(proc.Event{Name: "ready"})
	<-env.Orders()
	var all sync.WaitGroup
	for i := range guardedKeys {
		all.Go(func() { work(fmt.Sprint("key ", i)) })
	}
	<-env.Orders()
	close(finish)
	all.Wait()
	s.Close(context.Background())
	env.Emit(proc.Event{Name: "done"})
}

// A change is a transaction's change to one document.
type change struct {
	NS string `bson:"ns"`
	O  struct {
		ID    string `bson:"_id"`
		Key   string `bson:"key"`
		Token int64  `bson:"token"`
	} `bson:"o"`
}

// transactions returns the committed transactions that wrote to the room's ledger, in the order in
// which they were committed.
func (r *room) transactions(t testing.TB) (all [][]change) {
	t.Helper()
	cur, err := r.Client(t).Database("local").Collection("oplog.rs").Find(t.Context(), d("o.applyOps.ns", r.DB+".left"))
	noErr(t, err)
	defer cur.Close(t.Context())
	for cur.Next(t.Context()) {
		var entry struct {
			O struct {
				ApplyOps []change `bson:"applyOps"`
			} `bson:"o"`
		}
		noErr(t, cur.Decode(&entry))
		all = append(all, entry.O.ApplyOps)
	}
	noErr(t, cur.Err())
	return all
}

// rollBack makes the set elect a new primary that lacks the old primary's last writes: it freezes the other members,
// then freezes the primary, and then thaws the other members.
func rollBack(t *testing.T, set *mongod.Set) {
	t.Helper()
	old := primary(t, set)
	freeze := func(m *mongod.Member) {
		noErr(t, m.Freeze())
	}
	for _, m := range set.Members() {
		if m != old {
			freeze(m)
		}
	}
	time.Sleep(300 * time.Millisecond)
	freeze(old)
	for _, m := range set.Members() {
		if m != old {
			m.Thaw()
		}
	}
	time.Sleep(4 * time.Second) // the election
	old.Thaw()
}

// After a transaction has been committed, no transaction with an older token of the same key is committed. This holds
// even if holders are frozen inside transactions, and if the primary steps down or is frozen.
func TestGuardCommitsInOrderOfTokens(t *testing.T) {
	t.Parallel()
	const processes = 4
	goal := cmp.Or(*guardTransactions, testkit.Rounds(300, 20_000))
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second,
			Args: []string{"--setParameter", "transactionLifetimeLimitSeconds=2"}})
		r := newRoom(t, own)
		for _, m := range own.Set().Members() { // the oplog must have room for all transactions
			admin := server.Connect(t, "mongodb://"+m.Addr+"/?directConnection=true").Database("admin")
			resize := bson.D{{Key: "replSetResizeOplog", Value: 1}, {Key: "size", Value: 990.0}}
			noErr(t, admin.RunCommand(t.Context(), resize).Err())
		}
		l := r.ledger()

		var mu sync.Mutex
		count := make(map[string]int)
		committed := make(map[string]proc.Event)
		tally := func(what string, n int) int {
			mu.Lock()
			defer mu.Unlock()
			count[what] += n
			return count[what]
		}
		a := r.args(r.short(time.Second))
		var ps []*proc.Proc
		for i := range processes {
			a.How = fmt.Sprint("process ", i)
			p := proc.Start(t, "guarding", a)
			p.Await("ready")
			ps = append(ps, p)
		}
		began := time.Now()
		var all sync.WaitGroup
		for _, p := range ps {
			p.Tell(proc.Order{Do: "go"})
			all.Go(func() {
				for ev := range p.Events() {
					mu.Lock()
					count[ev.Name]++
					switch ev.Name {
					case "committed":
						committed[ev.Text] = ev
					case "failed":
						t.Logf("%s: %s", ev.Text, ev.Err)
					}
					mu.Unlock()
					if ev.Name == "done" {
						return
					}
				}
			})
		}
		draw := lab.Rand(t.Name())
		for turn := 1; turn <= 10 || tally("committed", 0) < goal; turn++ {
			p := ps[draw.IntN(processes)]
			p.Stop()
			time.Sleep(time.Duration(500+draw.IntN(1500)) * time.Millisecond)
			p.Cont()
			tally("frozen processes", 1)
			time.Sleep(time.Duration(draw.IntN(1000)) * time.Millisecond)
			switch {
			case turn%10 == 3:
				if err := own.Set().StepDown(t.Context()); err == nil {
					tally("step-downs", 1)
				}
			case turn%10 == 8:
				rollBack(t, own.Set())
				tally("frozen primaries", 1)
			}
			if time.Since(began) > 5*time.Minute+time.Duration(goal)*50*time.Millisecond {
				t.Fatalf("only %d transactions were committed in %v", tally("committed", 0), time.Since(began))
			}
		}
		for _, p := range ps {
			p.Tell(proc.Order{Do: "finish"})
		}
		all.Wait()
		took := time.Since(began)

		last := make(map[string]int64)
		number := make(map[string]int64)
		holders := 0
		for _, tx := range r.transactions(t) {
			var wrote []change
			for _, c := range tx {
				if c.NS != r.DB+".guards" {
					wrote = append(wrote, c)
				}
			}
			if len(wrote) != 2 || wrote[0].O != wrote[1].O || len(tx) != 3 {
				t.Fatalf("a transaction contains %v, want the token and the same document in both collections", tx)
			}
			w := wrote[0].O
			if w.Token < last[w.Key] {
				t.Errorf("%s was committed with token %d, after a transaction with token %d", w.ID, w.Token, last[w.Key])
			}
			if w.Token != last[w.Key] {
				holders++
			}
			last[w.Key] = w.Token
			number[w.Key]++
			delete(committed, w.ID)
		}
		for id := range committed {
			t.Errorf("%s was acknowledged but is not in the oplog", id)
		}
		total := int64(0)
		for key, n := range number {
			total += n
			if doc := document(t, l.tokens, key); doc["n"] != n || doc["token"] != last[key] {
				t.Errorf("%s: its document is %v after %d transactions, the last with token %d", key, doc, n, last[key])
			}
		}
		if n, err := l.right.CountDocuments(t.Context(), d("token", d("$gt", 0))); err != nil || n != total {
			t.Errorf("%d documents, %v, after %d transactions", n, err, total)
		}
		if count["fenced"] == 0 || count["step-downs"]+count["frozen primaries"] == 0 {
			t.Errorf("no transaction was refused, or no primary was harmed, so this test shows little: %v", count)
		}
		rollbacks, err := own.Set().Rollbacks(t.Context())
		if err != nil {
			t.Error(err)
		}
		lab.Note(t, "%d transactions of %d holders in %.0f s: %v, %d rollbacks", total, holders, took.Seconds(), count, rollbacks)
	})
}
