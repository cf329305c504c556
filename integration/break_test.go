package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// L5, promise 9: ForceHold acquires a lock only after its holder was notified and has either
// released the lock or used up its grace. A holder whose session listens is notified at once,
// without waiting for a heartbeat.
func TestL5Break(t *testing.T) {
	for _, listens := range []bool{true, false} {
		t.Run(fmt.Sprint("listens ", listens), func(t *testing.T) {
			lab.Each(t, server.Need{Notices: listens}, func(t *testing.T, s *server.Server) {
				r := newRoom(t, s)
				const grace = 300 * time.Millisecond
				opt := r.short(patient)
				opt.AlwaysListen, opt.Retention, opt.Grace, opt.HeartbeatInterval = listens, -1, grace, time.Second
				if listens {
					opt.TTL, opt.HeartbeatInterval = idleOptions().TTL, 0 // heartbeats are so rare that only a notice can be in time
				}
				var beats atomic.Int64
				opt.Hooks = &dsync.Hooks{Heartbeat: func(time.Duration, time.Duration, error) { beats.Add(1) }}
				mon := newMonitor(r.DB)
				holder := lock(t, r.session(opt, mon.client()).Mutex("broken"))
				if listens {
					eventually(t, "the holder listens to notices", func() bool { return len(mon.commands(awaits)) > 0 })
					time.Sleep(500 * time.Millisecond) // until its listener is ready and the session has polled the key once more
				}
				notified := make(chan time.Time, 1)
				lost := holder.Lost()
				go func() {
					<-lost
					notified <- time.Now()
				}()
				begin := beats.Load()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				next, err := r.session(r.short(patient)).Mutex("broken").ForceHold(ctx)
				noErr(t, err)
				at := time.Now()
				select {
				case lostAt := <-notified:
					if d := at.Sub(lostAt); d < grace {
						t.Errorf("ForceHold acquired the lock %v after the holder's Lost closed, want at least the grace of %v", d, grace)
					}
				default:
					t.Error("ForceHold acquired the lock before the holder's Lost closed")
				}
				if n := beats.Load() - begin; listens && n != 0 {
					t.Errorf("the holder was notified after %d heartbeats, want none", n)
				}
				err = holder.Release(t.Context())
				if !errors.Is(err, dsync.ErrLost) || !errors.Is(err, dsync.ErrRevoked) {
					t.Errorf("Release by the former holder: %v", err)
				}
				if next.Token() == 0 {
					t.Error("the late Release ended the next holder's hold")
				}
				release(t, next)
			})
		})
	}
}

// L5: if a holder's session listens, a notice tells it of a Break or ForceHold. Another notice tells the caller of
// Break or ForceHold of the release. Neither has to wait for a poll (10 min) or a heartbeat (100 s).
func TestForceIsQuick(t *testing.T) {
	t.Parallel()
	forces := map[string]func(ctx context.Context, s *dsync.Session, key string) error{
		"Break": func(ctx context.Context, s *dsync.Session, key string) error { return admin.New(s).Break(ctx, key) },
		"ForceHold": func(ctx context.Context, s *dsync.Session, key string) error {
			_, err := s.Mutex(key).ForceHold(ctx)
			return err
		},
	}
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		for name, force := range forces {
			t.Run(name, func(t *testing.T) {
				r := newRoom(t, s)
				holding, forcing := newMonitor(r.DB), newMonitor(r.DB)
				o := idleOptions()
				o.TTL = 5 * time.Minute
				held := r.session(o, holding.client())
				holder := lock(t, held.Mutex("key"))
				eventually(t, "the holder listens", func() bool { return len(holding.commands(awaits)) > 0 })
				go func() {
					<-holder.Lost()
					holder.Release(t.Context())
				}()
				other := r.session(o, forcing.client())
				warm(t, other, "other")
				time.Sleep(500 * time.Millisecond)
				holding.reset()
				forcing.reset()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				noErr(t, force(ctx, other, "key"))
				took := time.Since(begin)
				if beats := holding.commands(func(c command) bool { return c.id == "s/"+held.ID() }); len(beats) > 0 {
					t.Errorf("the holder was notified after %d heartbeats, want none", len(beats))
				}
				sent := forcing.commands(func(c command) bool { return !listening(c) })
				if most := 12 + 4*int(took/time.Second); len(sent) > most {
					t.Errorf("%s's session sent %d commands, want at most %d: %v", name, len(sent), most, sent)
				}
				lab.Note(t, "%s: %v, %d commands: %v", name, took.Round(time.Millisecond), len(sent), sent)
			})
		}
	})
}

// L8, L9: Status returns the holders of a key, with the times of their holds, and its waiters. List
// returns the keys with a prefix, in order.
func TestL9Status(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(20 * time.Second)
		opt.Host, opt.Name = "host of a", "a"
		a, b := r.session(opt), r.session(r.short(20*time.Second))
		if st, err := admin.New(b).Status(t.Context(), "jobs/1"); st.Held() || err != nil {
			t.Errorf("Status of a free key: %v, %v, want no holder", st, err)
		}
		held := lock(t, a.Mutex("jobs/1"))
		ch := locking(t.Context(), b.Mutex("jobs/1"))
		eventually(t, "the waiter is queued", func() bool {
			st, err := admin.New(b).Status(t.Context(), "jobs/1")
			return err == nil && st.Waiting == 1
		})
		st, err := admin.New(b).Status(t.Context(), "jobs/1")
		if err != nil || len(st.Holders) != 1 || len(st.Queue) != 1 {
			t.Fatalf("Status: %+v, %v", st, err)
		}
		h := st.Holders[0]
		if h.Session != a.ID() || h.Host != "host of a" || h.Name != "a" || h.Token != held.Token() || h.Lapsed || !h.Renewed ||
			h.Since.After(st.Now.Add(s.Skew)) || !h.Until.After(st.Now) || h.TTL != opt.TTL || st.Kind != driver.KindMutex || !st.Held() {
			t.Errorf("Status: %+v", st)
		}
		if st.Queue[0].Session != b.ID() {
			t.Errorf("the queue is %+v", st.Queue)
		}
		for i := 2; i < 130; i++ {
			warm(t, a, fmt.Sprintf("jobs/%d", i))
		}
		var keys []string
		for st, err := range admin.New(b).List(t.Context(), "jobs/") {
			noErr(t, err)
			keys = append(keys, st.Key)
		}
		if len(keys) != 129 || !slices.IsSorted(keys) {
			t.Errorf("List: %d keys, %v", len(keys), keys)
		}
		release(t, held)
		release(t, granted(t, ch).h)
	})
}
