package integration_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B17: everything works with the rights find, insert, update and remove on the collection, and find, insert,
// createCollection and convertToCapped on the collections of notices. Sessions never send a command that needs another
// right. Without the rights on the collections of notices, sessions poll, and everything else works. A holder then
// learns of a Break at its next heartbeat, and each session logs once which rights to grant.
func TestB17OrdinaryRights(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string][]string{
		"pushed":                {"find", "insert", "createCollection", "convertToCapped"},
		"no right to make them": {"find", "insert"}, // like the role readWrite, but without the actions that make a collection capped
		"no right at all":       nil,
	} {
		t.Run(name, func(t *testing.T) { testOrdinaryRights(t, rights) })
	}
}

// withAuth starts a server like s, but with access control.
func withAuth(t *testing.T, s *server.Server) *server.Server {
	t.Helper()
	if s.Has(server.Need{Sharded: true}) {
		return lab.StartCluster(t, mongod.ClusterSpec{Auth: true})
	}
	spec := mongod.Spec{Auth: true}
	if !s.Has(server.Need{Standalone: true}) {
		spec.Members = 1
	}
	return lab.Start(t, spec)
}

// on(db, coll, actions) returns the privilege to perform the actions on a collection.
func on(db, coll string, actions ...string) bson.D {
	return bson.D{
		{Key: "resource", Value: bson.D{{Key: "db", Value: db}, {Key: "collection", Value: coll}}},
		{Key: "actions", Value: actions},
	}
}

func testOrdinaryRights(t *testing.T, onNotices []string) {
	lab.Each(t, server.Need{Binary: true}, func(t *testing.T, s *server.Server) {
		notices := slices.Contains(onNotices, "createCollection")
		own := withAuth(t, s)
		r := newRoom(t, own)
		app := own.Client(t).Database(r.DB)
		rights := bson.A{on(r.DB, collection, "find", "insert", "update", "remove")}
		for address := range addresses {
			if len(onNotices) > 0 {
				rights = append(rights, on(r.DB, noticesOf(address), onNotices...))
			}
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
		uri := own.URIAs("locker:secret@") + "&authSource=" + r.DB
		client := server.Connect(t, uri, mon.client())
		logs := make([]warned, 2)
		open := func(log *warned) *dsync.Session {
			// Leave the poll interval at its default, because users without these rights should not have to set it.
			o := dsync.Options{TTL: 20 * time.Second, Logger: log.logger()}
			if notices {
				o.TTL = 3 * time.Minute // heartbeats this rare can't notify a holder of Break in time
			}
			return r.open(client, o)
		}
		a, b := open(&logs[0]), open(&logs[1])
		ma, mb := a.Mutex("key"), b.Mutex("key")
		held := lock(t, ma)
		if mb.TryLock() {
			t.Error("TryLock of a held key succeeded")
		}
		ch := locking(t.Context(), mb)
		store, err := dsyncmongo.NewStore(r.opening(), client.Database(r.DB), nil)
		noErr(t, err)
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })
		release(t, held)
		release(t, granted(t, ch).h)
		l, err := a.Mutex("lease").Lease(t.Context(), time.Minute)
		noErr(t, err)
		if _, err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := store.Sweep(t.Context(), "s", driver.SweepState{}, time.Hour); err != nil {
			t.Error(err)
		}
		h := lock(t, ma)
		if notices {
			eventually(t, "the holder listens", func() bool { return admin.New(a).Stats().Listening })
		} else {
			eventually(t, "the holder has tried to listen", func() bool { return logs[0].String() != "" })
		}
		go func() {
			<-h.Lost()
			h.Release(t.Context()) // not Unlock, which would log that the hold was lost
		}()
		began := time.Now()
		if err := admin.New(b).Break(t.Context(), "key"); err != nil {
			t.Errorf("Break: %v", err)
		}
		if d := time.Since(began); notices && d > wakeUp {
			t.Errorf("Break took %v, though the holder listens", d)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range logs {
			if notices && logs[i].String() != "" {
				t.Errorf("warnings:\n%s", logs[i].String())
			} else if !notices {
				logs[i].once(t, "no right", "createCollection", "convertToCapped")
			}
		}

		// hello needs no rights.
		ordinary := []string{"hello", "create", "listCollections", "findAndModify", "update", "insert", "delete", "find", "aggregate", "getMore", "killCursors"}
		for _, c := range mon.commands(nil) {
			if !slices.Contains(ordinary, c.name) {
				t.Errorf("%v is not among the commands %v", c, ordinary)
			}
			const badValue, unauthorized, exists, conversion, duplicate = 2, 13, 48, 241, 11000
			switch {
			case c.name == "find" && c.code == badValue && !listening(c): // the collection is not capped
			case c.code == duplicate && knownOfProbe(c):
			case c.code == conversion && c.name == "update" && !aboutSession(c): // a short command whose conditions were not met
			case c.name == "create" && c.code == exists:
			case !notices && aboutNotices(c) && c.code == unauthorized:
			case c.code != 0:
				t.Errorf("%v: answered with code %d", c, c.code)
			}
		}
		if heard := len(mon.commands(awaits)) > 0; heard != notices {
			t.Errorf("somebody listened: %v, want %v", heard, notices)
		}
	})
}

// A user's rights are revoked while the user's process holds a lock. The process is notified in
// time, as if it had been cut off, and the log names the missing right. After that a Lock
// returns an error at once. When the rights have been granted again, the same session works again.
func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		own := withAuth(t, s)
		r := newRoom(t, own)
		admin := own.Client(t).Database(r.DB)
		run := func(cmd ...bson.E) {
			t.Helper()
			if err := admin.RunCommand(t.Context(), bson.D(cmd)).Err(); err != nil {
				t.Fatalf("%v: %v", cmd[0], err)
			}
		}
		run(bson.E{Key: "createUser", Value: "locker"}, bson.E{Key: "pwd", Value: "secret"}, bson.E{Key: "roles", Value: bson.A{"dbOwner"}})
		var log warned
		opt := r.short(4 * time.Second)
		opt.Logger = log.logger()
		client := server.Connect(t, own.URIAs("locker:secret@")+"&authSource="+r.DB)
		session := r.open(client, opt)
		m := session.Mutex("key")
		h := lock(t, m)
		lost := h.Lost()

		run(bson.E{Key: "revokeRolesFromUser", Value: "locker"}, bson.E{Key: "roles", Value: bson.A{"dbOwner"}})
		taken := time.Now()
		lostInTime(t, lost, taken, opt.TTL)
		if err := h.Release(t.Context()); sentinel(err) != "lost" {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		began := time.Now()
		if err := session.Mutex("other").LockContext(t.Context()); !errors.Is(err, dsync.ErrRefused) || time.Since(began) > opt.TTL {
			t.Errorf("Lock without rights: %v after %v, want ErrRefused", err, time.Since(began))
		}
		if n := strings.Count(log.String(), "op=Heartbeat"); n < 1 || n > 2 || !strings.Contains(log.String(), "not authorized") {
			t.Errorf("the log has %d lines about heartbeats, want one or two, with the reason:\n%s", n, log.String())
		}
		run(bson.E{Key: "grantRolesToUser", Value: "locker"}, bson.E{Key: "roles", Value: bson.A{"dbOwner"}})
		release(t, lock(t, m))
	})
}

// A syncBuffer is a buffer that may be written and read concurrently.
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
