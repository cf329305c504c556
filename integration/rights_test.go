package integration_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B17: find, insert, update, remove and changeStream on the one collection, and find,
// insert, createCollection and convertToCapped on that of notices, are enough for everything, and nothing
// else is even tried. Without those on the second all works but that force is told with
// the next heartbeat, and the log says once which right is missing.
func TestB17OrdinaryRights(t *testing.T) {
	t.Parallel()
	for _, notices := range []bool{true, false} {
		t.Run(fmt.Sprint("notices ", notices), func(t *testing.T) { testOrdinaryRights(t, notices) })
	}
}

func testOrdinaryRights(t *testing.T, notices bool) {
	lab.Each(t, server.Need{Binary: true}, func(t *testing.T, s *server.Server) {
		spec := mongod.Spec{Auth: true}
		if !s.Has(server.Need{Standalone: true}) {
			spec.Members = 1
		}
		own := lab.Start(t, spec)
		r := newRoom(t, own)
		app := own.Client(t).Database(r.DB)
		rights := bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: r.DB}, {Key: "collection", Value: collection}}},
			{Key: "actions", Value: bson.A{"find", "insert", "update", "remove", "changeStream"}},
		}}
		if notices {
			rights = append(rights, bson.D{
				{Key: "resource", Value: bson.D{{Key: "db", Value: r.DB}, {Key: "collection", Value: collection + ".notices"}}},
				{Key: "actions", Value: bson.A{"find", "insert", "createCollection", "convertToCapped"}},
			})
		}
		for _, cmd := range []bson.D{
			{{Key: "createRole", Value: "locker"},
				{Key: "privileges", Value: rights},
				{Key: "roles", Value: bson.A{}}},
			{{Key: "createUser", Value: "locker"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"locker"}}},
		} {
			if err := app.RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Fatalf("%v: %v", cmd[0], err)
			}
		}

		mon := newMonitor(r.DB)
		uri := own.Set().URIAs("locker:secret@") + "&authSource=" + r.DB
		client := server.Connect(t, uri, mon.client())
		opt := r.short(20 * time.Second)
		var log syncBuffer
		opt.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		a, b := r.open(client, opt), r.open(client, opt)
		ma, mb := a.Mutex("key"), b.Mutex("key")
		lock(t, ma, 20*time.Second)
		if mb.TryLock() {
			t.Error("TryLock of a held key succeeded")
		}
		ch := locking(t.Context(), mb)
		store, err := dsyncmongo.NewStore(t.Context(), client.Database(r.DB), nil)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the waiter stands in line", func() bool { return load(t, store, "key").Waiting == 1 })
		unlock(t, ma)
		granted(t, ch, 10*time.Second)
		unlock(t, mb)
		l, err := a.Acquire(t.Context(), "lease", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := store.Sweep(t.Context(), "s", dsync.SweepState{}, time.Hour); err != nil {
			t.Error(err)
		}
		lock(t, ma, 20*time.Second)
		time.Sleep(2 * time.Second) // it holds for long enough to listen
		lost := ma.Lost()
		go func() {
			<-lost
			ma.Unlock()
		}()
		began := time.Now()
		if err := b.Break(t.Context(), "key"); err != nil {
			t.Errorf("Break: %v", err)
		}
		if d := time.Since(began); notices && d > 3*time.Second {
			t.Errorf("Break took %v, though the holder listens", d)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "no right to listen"); n != map[bool]int{true: 0, false: 1}[notices] {
			t.Errorf("%d warnings that a right is missing:\n%s", n, log.String())
		}

		// hello needs no right at all.
		ordinary := []string{"hello", "create", "findAndModify", "update", "insert", "delete", "find", "aggregate", "getMore", "killCursors"}
		streams := 0
		for _, c := range mon.commands(nil) {
			if !slices.Contains(ordinary, c.name) {
				t.Errorf("%v is not among the commands %v", c, ordinary)
			}
			const unauthorized, exists, duplicate, noStream = 13, 48, 11000, 40573
			switch {
			case c.code == duplicate && knownOfProbe(c):
			case c.code == noStream && spec.Members == 0:
			case c.name == "create" && c.code == exists:
			case !notices && strings.HasSuffix(collectionOf(c), ".notices") && c.code == unauthorized:
			case c.code != 0:
				t.Errorf("%v: answered with code %d", c, c.code)
			}
			if c.name == "getMore" {
				streams++
			}
		}
		if spec.Members > 0 && streams == 0 {
			t.Error("no change stream was open, so its right was not shown")
		}
	})
}

// collectionOf is the name of the collection that the command is about.
func collectionOf(c command) string {
	name, _ := c.body.Lookup(c.name).StringValueOK()
	return name
}

// A syncBuffer is a buffer that may be written to while it is read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
