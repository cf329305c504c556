package integration_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B07: the server's clock is an hour ahead of or behind the host's. In spite of the skew, holders are notified at the
// usual time, and a killed process's lock is granted at the usual time.
func TestB07HourApart(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(ahead.String(), func(t *testing.T) {
				t.Parallel()
				env, ok := server.FakeClock(ahead)
				if !ok {
					lab.Skip(t, s, server.NoFakeClock)
				}
				own := lab.Start(t, mongod.Spec{Members: 1, Env: env})
				r := newRoom(t, own)
				var hello struct {
					LocalTime time.Time `bson:"localTime"`
				}
				err := own.Client(t).Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
				if err != nil {
					t.Fatal(err)
				}
				if off := time.Until(hello.LocalTime); (off - ahead).Abs() > time.Minute {
					t.Fatalf("the server's clock is %v ahead, want %v", off, ahead)
				}

				opt := r.short(6 * time.Second)
				opt.HeartbeatInterval = time.Second
				store := r.store()
				waiter := r.session(r.short(patient))

				// A killed process's lock is granted once the server's clock shows that its
				// session has lapsed.
				p, holder := r.startHolder(opt, "killed")
				ch := locking(t.Context(), waiter.Mutex("killed"))
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "killed").Waiting == 1 })
				p.Kill()
				time.Sleep(100 * time.Millisecond)
				died := member(t, store, holder.Text)
				lapse := died.LastHeartbeat.Add(died.TTL)
				g := granted(t, ch)
				over := load(t, store, "killed").Holders[0].Since.Sub(lapse)
				if over < 0 || over > wakeUp {
					t.Errorf("taken %v after the killed session lapsed, want 0 to %v", over, wakeUp)
				}
				release(t, g.h)

				// A holder that is cut off is notified before its lock is granted to another
				// session.
				px := r.proxy()
				cut := r.via(px, opt)
				lost := lock(t, cut.Mutex("cut")).Lost()
				notified := make(chan time.Time, 1)
				go func() {
					<-lost
					notified <- time.Now()
				}()
				ch = locking(t.Context(), waiter.Mutex("cut"))
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "cut").Waiting == 1 })
				renewed(t, cut, 4)
				if closed(lost) {
					t.Fatal("the hold was lost although nothing has happened")
				}
				px.Hang()
				g = granted(t, ch)
				select {
				case at := <-notified:
					if gap := g.at.Sub(at); gap < opt.TTL/10 {
						t.Errorf("the holder was notified %v before the lock was granted again, want the grace of %v", gap, opt.TTL/10)
					}
				default:
					t.Error("the lock was granted again before the holder was notified")
				}
				release(t, g.h)

				// A fixed lease lapses after its duration.
				const d = 4 * time.Second
				l, err := waiter.Mutex("leased").Lease(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				<-l.Lost()
				if took := time.Since(begin); took < d/2 || took > d {
					t.Errorf("a lease of %v ended after %v, want at least half of that, and at most all of it", d, took)
				}
			})
		}
	})
}
