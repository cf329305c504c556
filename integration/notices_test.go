package integration_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// notices returns the existing collections of notices.
func (r *room) notices() []*mongo.Collection {
	r.t.Helper()
	db := r.Client(r.t).Database(r.DB)
	names, err := db.ListCollectionNames(r.t.Context(), bson.D{})
	if err != nil {
		r.t.Fatal(err)
	}
	var colls []*mongo.Collection
	for _, name := range names {
		if strings.HasPrefix(name, collection+".notices.") {
			colls = append(colls, db.Collection(name))
		}
	}
	return colls
}

// warned collects the warnings that sessions log.
type warned struct{ syncBuffer }

func (w *warned) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// w.once fails the test unless exactly one warning was logged and that warning contains the
// words.
func (w *warned) once(t *testing.T, words ...string) {
	t.Helper()
	text := w.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1 || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(lines[0], word) }) {
		t.Errorf("want one warning that contains %q, got\n%s", words, text)
	}
}

// r.listening begins to lock m, and returns when m's session listens. Another session must hold m's key.
func (r *room) listening(t *testing.T, m *dsync.Mutex, mon *monitor) <-chan grant {
	t.Helper()
	mon.reset()
	ch := locking(t.Context(), m)
	eventually(t, "the waiter listens", func() bool { return len(mon.commands(awaits)) > 0 })
	time.Sleep(500 * time.Millisecond) // wait until m's session has requested the key again
	return ch
}

// If notices overrun a listener's collection while the listener is not reading, the listener
// opens another cursor. The waiter then requests the key again, because the notice of its grant
// may have been overwritten.
func TestNoticesOverrun(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p := r.proxy()
		mon := newMonitor(r.DB)
		opt := idleOptions()
		opt.TTL = 2 * time.Minute
		holder, waiting := warm(t, r.session(opt), "key"), r.via(p, opt, mon.client())
		warm(t, waiting, "other")
		held := lock(t, holder)
		ch := r.listening(t, waiting.Mutex("key"), mon)

		p.Hang()
		time.Sleep(6 * time.Second) // wait until the server has answered all requests
		release(t, held)
		notice := bson.D{{Key: "to", Value: waiting.ID()}, {Key: "k", Value: "key"}}
		var place *mongo.Collection
		eventually(t, "the notice was sent", func() bool {
			for _, coll := range r.notices() {
				if n, err := coll.CountDocuments(t.Context(), notice); err == nil && n > 0 {
					place = coll
				}
			}
			return place != nil
		})
		junk := bson.D{{Key: "to", Value: "nobody"}, {Key: "junk", Value: make([]byte, 64<<10)}}
		for range 32 { // twice as much as the collection has room for
			if _, err := place.InsertOne(t.Context(), junk); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := place.CountDocuments(t.Context(), notice); err != nil || n != 0 {
			t.Fatalf("%d notices are left after the overrun (error %v), want none", n, err)
		}
		begin := time.Now()
		p.Heal()
		g := granted(t, ch) // because the waiter requests the key again; a poll would come later
		lab.Note(t, "granted %v after the server was reachable again", g.at.Sub(begin).Round(time.Millisecond))
		release(t, g.h)
	})
}

// If a listener's collection is dropped, the listener creates it again.
func TestNoticesDropped(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		var log warned
		opt := idleOptions()
		opt.TTL = 2 * time.Minute
		holder := warm(t, r.session(opt), "key")
		opt.Logger = log.logger()
		waiter := r.session(opt, mon.client()).Mutex("key")
		held := lock(t, holder)
		ch := r.listening(t, waiter, mon)

		mon.reset()
		dropped := r.notices()
		for _, coll := range dropped {
			noErr(t, coll.Drop(t.Context()))
		}
		if len(dropped) == 0 {
			t.Fatal("there was no collection of notices")
		}
		eventually(t, "the waiter listens again", func() bool {
			for i, c := range mon.commands(nil) {
				if awaits(c) && slices.ContainsFunc(mon.commands(nil)[:i], func(c command) bool { return onNotices(c) && c.name == "find" }) {
					return true
				}
			}
			return false
		})
		time.Sleep(500 * time.Millisecond)
		release(t, held)
		release(t, granted(t, ch).h) // thanks to the notice; a poll would come later
		log.once(t, "dropped")
	})
}

// polls checks that sessions on this client work without notices: a waiter gets its key by
// polling. The waiter's session logs to the given log.
func (r *room) polls(t *testing.T, log *warned, o dsyncmongo.Options, client *mongo.Client) {
	t.Helper()
	o.Session.TTL, o.Session.Logger = 20*time.Second, log.logger()
	open := func(o dsyncmongo.Options) *dsync.Session {
		s, err := dsyncmongo.Open(r.opening(), client.Database(r.DB), &o)
		noErr(t, err)
		t.Cleanup(func() { s.Close(t.Context()) })
		return s
	}
	waiter := open(o).Mutex("key")
	o.Session.Logger = r.logger()
	holder := open(o).Mutex("key")
	store := r.store()
	for range 3 {
		h := lock(t, holder)
		ch := locking(t.Context(), waiter)
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })
		time.Sleep(600 * time.Millisecond)
		release(t, h)
		release(t, granted(t, ch).h) // by a poll, at the default interval for a store that can't notify
	}
}

// If somebody has created uncapped collections of notices by hand, sessions poll, and one warning explains what to do.
func TestNoticesNotCapped(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		db := r.Client(t).Database(r.DB)
		for address := range addresses {
			noErr(t, db.CreateCollection(t.Context(), noticesOf(address)))
		}
		var log warned
		r.polls(t, &log, dsyncmongo.Options{}, r.Client(t))
		log.once(t, "not capped", "drop")
	})
}

// addresses is the default number of collections of notices: the default of
// Options.NoticeCollections, plus one for observers.
const addresses = 65

// The strict Stable API has no tailable cursors, so sessions poll, and one warning explains what to
// do.
func TestNoticesStrict(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		if s.Major() < 5 {
			lab.Skip(t, s, "no Stable API before 5.0")
		}
		r := newRoom(t, s)
		strict := options.Client().SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1).SetStrict(true))
		var log warned
		r.polls(t, &log, dsyncmongo.Options{}, r.Client(t, strict))
		log.once(t, "Stable API", "not strict")
	})
}

// If notices are switched off, no warning is logged.
func TestNoNotices(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var log warned
		r.polls(t, &log, dsyncmongo.Options{PollOnly: true}, r.Client(t))
		if text := log.String(); text != "" {
			t.Errorf("warnings:\n%s", text)
		}
		if colls := r.notices(); len(colls) > 0 {
			t.Errorf("there are %d collections of notices, want none", len(colls))
		}
	})
}

// Promise 5: on every server that can notify, even a standalone or a cluster, a waiter gets a notice. The waiter
// requests the key once, and once more if it has just begun to listen. The poll interval is ten minutes, so no request
// is a poll.
func TestWaiterIsNotified(t *testing.T) {
	t.Parallel()
	const rounds, hold = 6, 800 * time.Millisecond
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := idleOptions()
		opt.TTL = 2 * time.Minute
		mons := []*monitor{newMonitor(r.DB), newMonitor(r.DB)}
		holder := warm(t, r.session(opt, mons[0].client()), "pushed")
		waiter := warm(t, r.session(opt, mons[1].client()), "pushed")
		store := r.store()
		held := lock(t, holder)
		requested, listens := 0, 0
		var took time.Duration
		for round := range rounds {
			mon := mons[(round+1)%2] // the waiter's monitor
			mon.reset()
			ch := locking(t.Context(), waiter)
			eventually(t, "the waiter is queued", func() bool { return load(t, store, "pushed").Waiting == 1 })
			time.Sleep(hold)
			begin := time.Now()
			release(t, held)
			g := granted(t, ch)
			held = g.h
			took += g.at.Sub(begin)

			// Don't count short acquires: a session that was the last to hold a key sends a short
			// acquire first.
			requests := mon.commands(func(c command) bool { return c.name == "findAndModify" && c.id == "k/pushed" && acquire(c.body) })
			most := 1
			if round < len(mons) {
				most = 2 // the waiter has just begun to listen
			}
			if len(requests) > most {
				t.Errorf("round %d: requested %d times, want at most %d: %v", round, len(requests), most, requests)
			}
			requested += len(requests)
			listens += len(mon.commands(awaits))
			holder, waiter = waiter, holder
		}
		release(t, held)
		if listens == 0 {
			t.Error("no session listened, so this test shows nothing")
		}
		lab.Note(t, "%d waits of %v: requested %d times; granted %v after the call of Release, on average", rounds, hold, requested, (took / rounds).Round(100*time.Microsecond))
	})
}

// Whatever happens to the primary on which a waiter listens, a notice tells the waiter that it was granted the key. An
// open cursor does not show that its member is still the primary. If the member has stepped down, the cursor stays open
// without an error. The same is true of a member that is cut off from the others, although it gets no new notices.
// TestListenFollowsThePrimaryAtOnce in dsync/mongo checks, in a bubble, how soon the listener follows the primary.
func TestListenerFindsThePrimary(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, own *server.Server, net *proxy.Network){
		"step-down": func(t *testing.T, own *server.Server, _ *proxy.Network) {
			noErr(t, own.Set().StepDown(t.Context()))
		},
		"primary killed": func(t *testing.T, own *server.Server, _ *proxy.Network) {
			primary(t, own.Set()).Kill()
		},
		"primary cut off from the others": func(t *testing.T, own *server.Server, net *proxy.Network) {
			old := primary(t, own.Set())
			net.Proxy(old.Addr).Rule(always(proxy.LoseRequest, ofMembers))
			net.Proxy(old.Addr).Outgoing().Hang()
			for _, m := range own.Set().Members() {
				if m == old {
					continue
				}
				// Close the connections; otherwise requests that are under way would still be answered.
				out := net.Proxy(m.Addr).Outgoing()
				out.Cut()
				out.Heal()
			}
		},
	}
	// The ways to open the waiter's session.
	sessions := map[string]func(*room, dsync.Options, *monitor) *dsync.Session{
		"Open":    func(r *room, o dsync.Options, mon *monitor) *dsync.Session { return r.session(o, mon.client()) },
		"Connect": (*room).connect,
	}
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		for name, harm := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				net := proxy.NewNetwork(t)
				own := startBehind(t, net, mongod.Spec{
					Members: 3, ElectionTimeout: 2 * time.Second,
					Args: []string{"--networkMessageCompressors", "disabled"}, // so that the proxy can read the commands
				})
				r := newRoom(t, own)
				opt := dsync.Options{TTL: 2 * time.Minute, PollInterval: 10 * time.Minute, Retention: -1}
				holding := r.session(opt)
				held, waiting := make(map[string]*dsync.Hold), make(map[string]<-chan grant)
				for how, open := range sessions {
					mon := newMonitor(r.DB)
					held[how] = lock(t, warm(t, holding, how))
					waiting[how] = r.listening(t, open(r, opt, mon).Mutex(how), mon)
				}

				old := primary(t, own.Set())
				harm(t, own, net)
				eventually(t, "there is another primary", func() bool { return primary(t, own.Set()) != old })
				// If a Release gets a write concern error, its repetition finds nothing to release, and sends no notice.
				raw := r.raw()
				eventually(t, "a majority follows the other primary", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					_, err := raw.InsertOne(ctx, bson.D{})
					return err == nil
				})
				for _, h := range held {
					release(t, h) // this may have to wait for a request that went to the former primary
				}
				begin := time.Now()
				for how, ch := range waiting {
					g := granted(t, ch) // thanks to the notice; a poll would come later
					d := g.at.Sub(begin).Round(time.Millisecond)
					lab.Note(t, "%s, %s: granted %v after Release", name, how, d)
					release(t, g.h)
				}
			})
		}
	})
}

// connect is like session, but opens the session with Connect, which makes the client.
func (r *room) connect(o dsync.Options, mon *monitor) *dsync.Session {
	r.t.Helper()
	o.Logger = r.logger()
	client := options.MergeClientOptions(options.Client().ApplyURI(r.URI), mon.client())
	s, err := dsyncmongo.Connect(r.opening(), client, r.DB, &dsyncmongo.Options{Session: o})
	if err != nil {
		r.t.Fatalf("Connect: %v", err)
	}
	r.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ended)
	})
	return s
}

// ofMembers reports whether members of a set send this command to each other.
func ofMembers(c proxy.Command) bool {
	db, _ := c.Body.Lookup("$db").StringValueOK()
	return strings.HasPrefix(c.Name, "replSet") || db == "local"
}
