package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// startBehind starts a set in which clients and other members reach each member only through
// that member's proxy. The members identify themselves to the proxies.
func startBehind(t *testing.T, net *proxy.Network, spec mongod.Spec) *server.Server {
	t.Helper()
	spec.Announce = func(addr string) string { return net.Proxy(addr).Addr() }
	spec.Args = append(spec.Args, "--setParameter", "enableTestCommands=1")
	return lab.Start(t, spec)
}

// Faults on a client's link affect that client, and no other client of the same proxy.
func TestNetworkHarmsOneClient(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		net := proxy.NewNetwork(t)
		uri := net.Proxy(r.Primary(t)).URI()
		type insert func(id string, d time.Duration) error
		client := func(name string) insert {
			// Switch off retries: with them, the driver would hide a lost command.
			coll := server.Connect(t, uri+"&appName="+name, options.Client().SetRetryWrites(false)).Database(r.DB).Collection("c")
			return func(id string, d time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id + " by " + name}})
				return err
			}
		}
		harmed, other := client("harmed"), client("other")
		if err := harmed("plain", 10*time.Second); err != nil {
			t.Fatalf("through an idle network: %v", err)
		}
		link := net.Link("harmed")
		for _, c := range []struct {
			name    string
			harm    func()
			applied bool // whether the insert took effect although the client got an error
		}{
			{"cut", link.Cut, false},
			{"hang", link.Hang, false},
			{"hang requests", link.HangRequests, false},
			{"hang replies", link.HangReplies, true},
			{"rule", func() { link.Rule(always(proxy.LoseReply, func(c proxy.Command) bool { return c.Name == "insert" })) }, true},
		} {
			c.harm()
			if err := harmed(c.name, 500*time.Millisecond); err == nil {
				t.Errorf("%s: the insert of the harmed client succeeded", c.name)
			}
			if err := other(c.name, 10*time.Second); err != nil {
				t.Errorf("%s: the other client: %v", c.name, err)
			}
			err := s.Client(t).Database(r.DB).Collection("c").FindOne(t.Context(), bson.D{{Key: "_id", Value: c.name + " by harmed"}}).Err()
			if applied := err == nil; applied != c.applied {
				t.Errorf("%s: applied = %v, want %v", c.name, applied, c.applied)
			}
			link.Heal()
			if err := harmed("after "+c.name, 20*time.Second); err != nil {
				t.Errorf("after %s: %v", c.name, err)
			}
		}
	})
}

// A primary that is cut off from the other members, in one direction or in both, is replaced. If no message reaches the
// primary, it learns of its replacement only when it rejoins the set.
func TestNetworkPartsMembers(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		net := proxy.NewNetwork(t)
		own := startBehind(t, net, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		term := func(m *mongod.Member) (term int64) {
			direct := server.Connect(t, "mongodb://"+m.Addr+"/?directConnection=true")
			status, err := direct.Database("admin").RunCommand(t.Context(), bson.D{{Key: "replSetGetStatus", Value: 1}}).Raw()
			noErr(t, err)
			return status.Lookup("term").AsInt64()
		}
		// A member can roll back a write only if it knows of an earlier write that has reached all members; otherwise
		// mongod would exit. The second write tells all members that they all have the first.
		all := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 3})
		for range 2 {
			if _, err := r.Client(t).Database(r.DB).Collection("c", all).InsertOne(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
		}
		parts := []struct {
			name string
			harm func(in, out *proxy.Link)
			deaf bool
		}{
			{"cut off", func(in, out *proxy.Link) { in.Hang(); out.Hang() }, true},
			{"deaf", func(in, out *proxy.Link) { in.HangRequests(); out.HangReplies() }, true},
			// Messages may still reach the primary on existing connections.
			{"mute", func(in, out *proxy.Link) { in.HangReplies(); out.HangRequests() }, false},
		}
		for _, c := range parts[:testkit.Rounds(1, len(parts))] {
			old := primary(t, own.Set())
			before := term(old)
			in, out := net.Proxy(old.Addr).Link, net.Proxy(old.Addr).Outgoing()
			c.harm(in, out)
			var next *mongod.Member
			eventually(t, c.name+": there is another primary", func() bool {
				next = primary(t, own.Set())
				return next != old
			})
			if _, err := r.raw().InsertOne(t.Context(), bson.D{}); err != nil {
				t.Errorf("%s: a write to the others: %v", c.name, err)
			}
			time.Sleep(3 * time.Second) // several heartbeats
			if c.deaf && term(old) != before {
				t.Errorf("%s: the former primary has heard of the new one", c.name)
			}
			in.Heal()
			out.Heal()
			eventually(t, c.name+": the former primary is in the new term", func() bool { return term(old) == term(next) })
		}
	})
}

// B02, B03: however the holder is cut off, its Lost closes before the store grants the key to another session. At least
// the grace lies between the two.
func TestB02LostBeforeTaken(t *testing.T) {
	t.Parallel()
	lanes, rounds := testkit.Rounds(5, 8), testkit.Rounds(1, 5)
	faults := []struct {
		name string
		slow time.Duration // delay of each reply before the fault
		cut  func(p *proxy.Proxy, session string)
	}{
		{"cut", 0, func(p *proxy.Proxy, _ string) { p.Cut() }},
		{"hung", 0, func(p *proxy.Proxy, _ string) { p.Hang() }},
		// With slow replies, a deadline counted from the replies would be too late.
		{"cut after slow replies", 120 * time.Millisecond, func(p *proxy.Proxy, _ string) { p.Cut() }},
		{"heartbeats hung", 0, func(p *proxy.Proxy, id string) { p.Rule(always(proxy.LoseRequest, heartbeats(id))) }},
		{"replies lost", 0, func(p *proxy.Proxy, id string) {
			// Heartbeats reach the server, but their replies do not reach the holder. So the server extends the lease,
			// but the holder knows only an earlier end.
			p.Rule(always(proxy.LoseReply, heartbeats(id)))
		}},
	}
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const ttl = 3 * time.Second
		const grace = ttl / 10 // Options.Grace's default
		var mu sync.Mutex
		var least, most time.Duration
		var count int
		for lane := range lanes {
			t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, s)
				store, opt, stalls := r.store(), r.short(ttl), newStallMeter(t)
				next := r.session(r.short(patient))
				for round := range rounds {
					f := faults[(lane+round)%len(faults)]
					key := fmt.Sprintf("cut off %d", round)
					p := r.proxy()
					holder := r.via(p, opt)
					h := lock(t, holder.Mutex(key))
					notified := make(chan time.Time, 1)
					lost := h.Lost()
					go func() {
						<-lost
						notified <- time.Now()
					}()
					ch := locking(t.Context(), next.Mutex(key))
					eventually(t, "the next is queued", func() bool { return closed(lost) || load(t, store, key).Waiting == 1 })
					if f.slow > 0 {
						p.Delay(f.slow)
						time.Sleep(ttl) // several heartbeats with delayed replies
					}
					stalls.worst()
					begin := time.Now()
					f.cut(p, holder.ID())

					var at time.Time
					select {
					case at = <-notified:
					case <-time.After(ttl + 5*time.Second):
						t.Fatalf("%s: the holder was never notified", f.name)
					}
					if f.name == "replies lost" {
						// Until this cut, the server keeps extending the lease, although the holder's session is
						// already lost.
						p.Cut()
					}
					g := granted(t, ch)
					since := g.at
					if !remote() {
						// The server uses this host's clock, so use the grant's time in the store's record,
						// which is earlier than g.at.
						since = load(t, store, key).Holders[0].Since
					}
					gap := stalls.atLeast(t, f.name+": granted", since.Sub(at), grace)
					if took := at.Sub(begin); took > ttl {
						t.Errorf("%s: notified %v after the fault, want less than the TTL", f.name, took)
					}
					if err := h.Release(t.Context()); sentinel(err) != "lost" {
						t.Errorf("%s: late Release: %v, want ErrLost", f.name, err)
					}
					release(t, g.h)

					mu.Lock()
					if count == 0 || gap < least {
						least = gap
					}
					most = max(most, gap)
					count++
					mu.Unlock()
				}
			})
		}
		t.Cleanup(func() {
			lab.Note(t, "%d rounds, notified %v to %v before the next holder (grace %v)", count, least.Round(time.Millisecond), most.Round(time.Millisecond), grace)
		})
	})
}

func always(fate proxy.Fate, match func(proxy.Command) bool) func(proxy.Command) proxy.Fate {
	return func(c proxy.Command) proxy.Fate {
		if match(c) {
			return fate
		}
		return proxy.Pass
	}
}

// If the server is too busy even to report that there is no majority, the error contains this text.
const slow = "not answered in time: it is out of reach, overloaded, or locked for a backup (fsyncLock)"

// While one session holds a key and another session waits for it, outage harms the server so that no write is
// acknowledged. After a while it heals the server. It checks that the holder is notified in time, and that nobody is
// told of a grant that may still be undone. It also checks that the log and Release's error contain the reason, and
// that everything continues afterwards.
func outage(t *testing.T, own *server.Server, why string, harm, heal func()) {
	t.Helper()
	r := newRoom(t, own)
	opt := r.short(10 * time.Second)
	var log warned
	opt.Logger = log.logger()
	holder, waiter := r.session(opt), r.session(r.short(patient))
	m := holder.Mutex("key")
	h := lock(t, m)
	first, lost := h.Token(), h.Lost()
	ch := locking(t.Context(), waiter.Mutex("key"))
	store := r.store()
	eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })

	harm()
	stopped := time.Now()
	lostInTime(t, lost, stopped, opt.TTL)
	err := h.Release(t.Context())
	if sentinel(err) != "lost" || !strings.Contains(err.Error(), why) && !strings.Contains(err.Error(), slow) {
		t.Errorf("Release: %v, want ErrLost because of %q", err, why)
	}
	time.Sleep(time.Until(stopped.Add(3 * opt.TTL / 2)))
	select {
	case g := <-ch:
		t.Errorf("granted although no write was acknowledged: %+v", g)
	default:
	}
	heal()
	g := granted(t, ch)
	if g.token <= first {
		t.Errorf("token %d came after %d, want a greater one", g.token, first)
	}
	g.h.Release(t.Context()) // the hold may be lost again while the secondary lags
	eventually(t, "a hold is released", func() bool { return lock(t, m).Release(t.Context()) == nil })

	said := make(map[string]int)
	for line := range strings.Lines(log.String()) {
		_, op, _ := strings.Cut(line, "op=")
		op, _, _ = strings.Cut(op, " ")
		said[op]++
	}
	most := 3 + int(time.Since(stopped)/(10*time.Second)) // logged at the beginning, every ten seconds, and at the end
	for op, n := range said {
		if op != "" && n > most {
			t.Errorf("the log has too many lines, %d, about %s:\n%s", n, op, log.String())
		}
	}
	if !strings.Contains(log.String(), why) && !strings.Contains(log.String(), slow) {
		t.Errorf("the log does not contain %q:\n%s", why, log.String())
	}
	t.Log(log.String())
}

// If the secondary of a set with an arbiter is frozen, the primary stays primary and accepts
// writes, but no majority acknowledges them. When thawed, the secondary lags, because an
// application has written in the meantime.
func TestArbiter(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, Arbiter: true})
		secondary := secondaries(t, own.Set())[0]
		outage(t, own, "waiting for replication timed out",
			func() {
				noErr(t, secondary.Freeze())
				t.Cleanup(func() { secondary.Thaw() })
				application(t, own)
			},
			func() {
				noErr(t, secondary.Thaw())
			})
	})
}

// A primary that is locked for a backup answers reads, but writes hang.
func TestWritesLocked(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3})
		admin := server.Connect(t, "mongodb://"+primary(t, own.Set()).Addr+"/?directConnection=true").Database("admin")
		run := func(cmd bson.D) {
			t.Helper()
			if err := admin.RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
		outage(t, own, slow,
			func() { run(bson.D{{Key: "fsync", Value: 1}, {Key: "lock", Value: true}}) },
			func() {
				run(bson.D{{Key: "dbStats", Value: 1}}) // a read
				run(bson.D{{Key: "fsyncUnlock", Value: 1}})
			})
	})
}
