package integration_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func d(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// orders returns a collection of test documents, and a fenced collection for writing to it.
func (r *room) orders() (*mongo.Collection, *fence.Collection) {
	r.t.Helper()
	coll := r.Client(r.t).Database(r.DB).Collection("orders")
	return coll, fence.New(coll, nil)
}

// document returns the document with the given id, or nil if there is none.
func document(t testing.TB, coll *mongo.Collection, id any) map[string]any {
	t.Helper()
	var doc map[string]any
	err := coll.FindOne(t.Context(), d("_id", id)).Decode(&doc)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
	return doc
}

// Every kind of write is refused in three cases: the document has seen a greater token, its fence field is neither a
// number nor null, or the write's token is 0. Otherwise the write is applied.
func TestFence(t *testing.T) {
	ways := []struct {
		name  string
		write func(context.Context, *fence.Collection, int64, any) (int64, error)
		want  func(by int64) map[string]any // the document after the write, without _id
	}{
		{"operators", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.UpdateOne(ctx, token, filter, d("$set", d("by", token))))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by, "note": "x"} }},
		{"$max and operators", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.UpdateOne(ctx, token, filter, bson.M{"$max": bson.M{"by": token}, "$unset": bson.M{"note": ""}}))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by} }},
		{"pipeline", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.UpdateOne(ctx, token, filter, mongo.Pipeline{
				d("$set", d("by", d("$toLong", token))), d("$unset", "note"),
			}))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by} }},
		{"pipeline that replaces all", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.UpdateOne(ctx, token, filter, mongo.Pipeline{d("$replaceWith", d("by", token))}))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by} }},
		{"replacement", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.ReplaceOne(ctx, token, filter, struct {
				By    int64
				Text  string
				Fence int64 // any number will do, because ReplaceOne sets the field
			}{token, "$note", 1 << 62}))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by, "text": "$note"} }},
		{"raise", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.RaiseToken(ctx, token, filter))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "note": "x"} }},
		{"delete", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			res, err := f.DeleteOne(ctx, token, filter)
			if res == nil {
				return 0, err
			}
			return res.DeletedCount, err
		}, func(int64) map[string]any { return nil }},
		{"upsert", func(ctx context.Context, f *fence.Collection, token int64, filter any) (int64, error) {
			return matched(f.Upsert(ctx, token, filter.(bson.D)[0].Value, d("$set", d("by", token))))
		}, func(by int64) map[string]any { return map[string]any{"fence": by, "by": by, "note": "x"} }},
	}
	const seen = int64(5000)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		coll, orders := r.orders()
		ctx := t.Context()
		for i, way := range ways {
			for _, c := range []struct {
				name    string
				was     any // the fence field before the write; nil if there is none
				token   int64
				applied bool
			}{
				{"older", seen, seen - 1, false},
				{"much older", seen, 1, false},
				{"the same", seen, seen, true},
				{"newer", seen, seen + 1, true},
				{"first", nil, 1, true},
				{"after null", bson.Null{}, 1, true},
				{"after a 32-bit number", int32(7), seen, true},
				{"older than a 32-bit number", int32(7), 6, false},
				{"no number", "text", seen, false},
				{"an array with a small number", bson.A{seen + 9, int64(1)}, seen, false},
				{"an array with null", bson.A{bson.Null{}}, seen, false},
				{"an empty array", bson.A{}, seen, false},
				{"none", seen, 0, false},
				{"none, first", nil, 0, false},
			} {
				name := fmt.Sprintf("%s: %s", way.name, c.name)
				before := bson.D{{Key: "_id", Value: name}, {Key: "note", Value: "x"}}
				if c.was != nil {
					before = append(before, bson.E{Key: "fence", Value: c.was})
				}
				if _, err := coll.InsertOne(ctx, before); err != nil {
					t.Fatal(err)
				}
				was := document(t, coll, name)
				n, err := way.write(ctx, orders, c.token, d("_id", name))
				now := document(t, coll, name)
				if !c.applied {
					var why *fence.StaleError
					if !errors.Is(err, fence.ErrStale) || !errors.As(err, &why) || n != 0 {
						t.Errorf("%s: got %d, %v, want ErrStale", name, n, err)
					} else if got, want := why.Seen, was["fence"]; c.token > 0 && want == any(seen) && (got != seen || why.ID.StringValue() != name) {
						t.Errorf("%s: the error contains %+v, want the token that the document has seen", name, why)
					}
					if fmt.Sprint(now) != fmt.Sprint(was) {
						t.Errorf("%s: the document is %v, want it unchanged, %v", name, now, was)
					}
					continue
				}
				if n != 1 || err != nil {
					t.Errorf("%s: got %d, %v, want it applied", name, n, err)
				}
				want := way.want(c.token)
				if want != nil {
					want["_id"] = name
				}
				if fmt.Sprint(now) != fmt.Sprint(want) {
					t.Errorf("%s: the document is %v, want %v", name, now, want)
				}
				if _, isLong := now["fence"].(int64); want != nil && !isLong {
					t.Errorf("%s: the token is a %T, want an int64", name, now["fence"])
				}
			}

			// The document does not exist.
			id := fmt.Sprintf("nothing %d", i)
			n, err := way.write(ctx, orders, seen, d("_id", id))
			if n != 0 || err != nil {
				t.Errorf("%s without a document: got %d, %v, want 0, nil", way.name, n, err)
			}
			want := map[string]any(nil)
			if way.name == "upsert" {
				want = map[string]any{"_id": id, "by": seen, "fence": seen}
			}
			if got := document(t, coll, id); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s without a document left %v, want %v", way.name, got, want)
			}
		}

		if _, err := orders.InsertOne(ctx, seen, bson.M{"_id": "inserted"}); err != nil {
			t.Error(err)
		}
		if got := document(t, coll, "inserted"); got["fence"] != seen {
			t.Errorf("inserted %v, want the token in it", got)
		}
		if _, err := orders.InsertOne(ctx, seen-1, bson.M{"_id": "inserted"}); !mongo.IsDuplicateKeyError(err) {
			t.Errorf("a second insert: got %v, want a duplicate key", err)
		}
		if _, err := orders.UpdateOne(ctx, seen-1, d("_id", "inserted"), d("$set", d("by", 1))); !errors.Is(err, fence.ErrStale) {
			t.Errorf("after the insert: got %v, want ErrStale", err)
		}

		// If several documents match, the write goes to one whose fence allows it.
		for i, token := range []int64{seen, seen - 2} {
			if _, err := orders.InsertOne(ctx, token, bson.M{"_id": fmt.Sprintf("many %d", i), "many": true}); err != nil {
				t.Error(err)
			}
		}
		for i, want := range []error{nil, fence.ErrStale} {
			n, err := matched(orders.UpdateOne(ctx, seen-1-int64(2*i), d("many", true), d("$set", d("by", i))))
			if int(n) != 1-i || !errors.Is(err, want) {
				t.Errorf("write %d to one of many: got %d, %v, want %v", i, n, err, want)
			}
		}
	})
}

func matched(res *mongo.UpdateResult, err error) (int64, error) {
	if res == nil {
		return 0, err
	}
	return res.MatchedCount, err
}

// If writers compete, their writes are applied in the order of the tokens, and refused writes leave no trace.
func TestFenceConcurrentWriters(t *testing.T) {
	const writers, writes = 8, 25
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		coll, orders := r.orders()
		tokens := lab.Rand(t.Name()).Perm(writers * writes)
		var mu sync.Mutex
		applied, refused := make(map[int64]bool), make(map[int64]bool)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				mine := tokens[w*writes : (w+1)*writes]
				slices.Sort(mine) // sorted, so that most writes are applied
				for i, n := range mine {
					token := int64(n + 1)
					var err error
					if i%2 == 0 {
						_, err = orders.Upsert(t.Context(), token, "o", d("$push", d("log", token)))
					} else {
						_, err = orders.Upsert(t.Context(), token, "o", mongo.Pipeline{d("$set", d("log",
							d("$concatArrays", bson.A{d("$ifNull", bson.A{"$log", bson.A{}}), bson.A{token}})))})
					}
					mu.Lock()
					switch {
					case err == nil:
						applied[token] = true
					case errors.Is(err, fence.ErrStale):
						refused[token] = true
					default:
						t.Errorf("token %d: %v", token, err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		var doc struct {
			Fence int64
			Log   []int64
		}
		noErr(t, coll.FindOne(t.Context(), d("_id", "o")).Decode(&doc))
		if !slices.IsSorted(doc.Log) {
			t.Errorf("the tokens do not grow: %v", doc.Log)
		}
		if len(doc.Log) != len(applied) || slices.ContainsFunc(doc.Log, func(n int64) bool { return !applied[n] }) {
			t.Errorf("the document contains the tokens %v, want the applied ones, %v", doc.Log, applied)
		}
		if doc.Fence != writers*writes || !applied[writers*writes] {
			t.Errorf("the fence is %d, want the greatest token, %d", doc.Fence, writers*writes)
		}
		if len(refused) == 0 {
			t.Error("no write was refused, so the writers did not compete")
		}
		lab.Note(t, "%d writes applied, %d refused", len(applied), len(refused))
	})
}

// A fenced write inside a transaction is part of the transaction, and can be refused like any other write.
func TestFenceInTransaction(t *testing.T) {
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		client := r.Client(t)
		coll := client.Database(r.DB).Collection("orders")
		orders := fence.New(coll, nil)
		if _, err := orders.InsertOne(t.Context(), 10, bson.M{"_id": "o"}); err != nil {
			t.Fatal(err)
		}
		tx, err := client.StartSession()
		noErr(t, err)
		defer tx.EndSession(context.Background())
		abort := errors.New("abort")
		for _, c := range []struct {
			token, after int64
			end, want    error
		}{
			{11, 10, abort, abort},
			{9, 10, nil, fence.ErrStale},
			{12, 12, nil, nil},
		} {
			_, err := tx.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				if _, err := orders.UpdateOne(ctx, c.token, d("_id", "o"), d("$set", d("by", c.token))); err != nil {
					return nil, err
				}
				return nil, c.end
			})
			if !errors.Is(err, c.want) {
				t.Errorf("token %d: got %v, want %v", c.token, err, c.want)
			}
			if got := document(t, coll, "o")["fence"]; got != c.after {
				t.Errorf("after token %d the fence is %v, want %d", c.token, got, c.after)
			}
		}
	})
}

// fenced is a child that locks the key and writes. Then it spins until it notices that it was frozen for a while, and
// writes again as if nothing had happened. On the order "write" it uses the token that it read before the freeze; on
// "check" it asks the hold for its token again. It runs on one thread, so that no other goroutine notices the freeze
// earlier.
func fenced(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	runtime.GOMAXPROCS(1)
	s := a.session(env, nil)
	client, err := mongo.Connect(options.Client().ApplyURI(a.URI))
	if err != nil {
		env.Fatal(err)
	}
	orders := fence.New(client.Database(a.DB).Collection("orders"), nil)
	env.Emit(proc.Event{Name: "ready"})
	for o := range env.Orders() {
		h, err := s.Mutex(a.Key).Hold(context.Background())
		if err != nil {
			env.Fatal(err)
		}
		token := h.Token()
		write := func(by string) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			ev := proc.Event{Name: "wrote", Token: token}
			if _, err := orders.UpdateOne(ctx, token, d("_id", a.Key), d("$set", d("by", by))); err != nil {
				ev.Err = err.Error()
				if errors.Is(err, fence.ErrStale) {
					ev.Is = "fenced"
				}
			}
			env.Emit(ev)
		}
		write("before")
		for last := time.Now(); ; {
			now := time.Now()
			gap := now.Sub(last)
			if last = now; gap > a.TTL {
				break
			}
		}
		if o.Do == "check" {
			token = h.Token()
		}
		write("after")
		h.Release(context.Background())
	}
}

// The example in the comment of package fence, with real processes. It runs twice, or six times in a long run.
func TestFenceFrozenHolder(t *testing.T) {
	t.Parallel()
	processes, rounds := 2, testkit.Rounds(1, 3)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(2 * time.Second)
		waiter := r.session(r.short(patient))
		coll, orders := r.orders()
		for i := range processes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				a := r.args(opt)
				a.Key = fmt.Sprintf("fenced %d", i)
				if _, err := coll.InsertOne(t.Context(), d("_id", a.Key)); err != nil {
					t.Fatal(err)
				}
				p := proc.Start(t, "fenced", a)
				p.Await("ready")
				for round := range rounds {
					how := []string{"write", "check"}[(i+round)%2]
					p.Tell(proc.Order{Do: how})
					first := p.Await("wrote")
					if first.Err != "" {
						t.Fatalf("round %d: the holder's write: %s", round, first.Err)
					}
					time.Sleep(20 * time.Millisecond) // until it spins
					p.Stop()
					stopped := time.Now()

					g := granted(t, locking(t.Context(), waiter.Mutex(a.Key)))
					if _, err := orders.UpdateOne(t.Context(), g.token, d("_id", a.Key), d("$set", d("by", "next"))); err != nil {
						t.Errorf("round %d: the next holder's write: %v", round, err)
					}
					time.Sleep(time.Until(stopped.Add(2 * opt.TTL)))
					p.Cont()

					late := p.Await("wrote")
					if late.Is != "fenced" {
						t.Errorf("round %d: the frozen holder's write (%s) returned %q, want ErrStale", round, how, late.Err)
					}
					if want := fmt.Sprint(g.token); how == "write" && !strings.Contains(late.Err, want) {
						t.Errorf("round %d: the error %q does not contain %s", round, late.Err, want)
					}
					if got := document(t, coll, a.Key); got["by"] != "next" || got["fence"] != g.token {
						t.Errorf("round %d: the document is %v, want the next holder's, %d", round, got, g.token)
					}
					release(t, g.h)
				}
			})
		}
	})
}
