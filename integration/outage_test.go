package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

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
				if err := secondary.Freeze(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { secondary.Thaw() })
				application(t, own)
			},
			func() {
				if err := secondary.Thaw(); err != nil {
					t.Fatal(err)
				}
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
