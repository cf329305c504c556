package integration_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
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
			if err := coll.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
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
			if err := db.CreateCollection(t.Context(), noticesOf(address)); err != nil {
				t.Fatal(err)
			}
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
