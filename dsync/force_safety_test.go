package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// Promise 9, B29, L5: the holder is notified first. The next holder gets the key once the first holder has unlocked or
// its grace is over, and not earlier. The test combines every way to hold the key with every way to be notified. Some
// holders stop in time, and some don't.
func TestForceNotifiesFirst(t *testing.T) {
	// notices lists the ways in which the holder's process can be notified, each with the longest time that it may
	// take.
	notices := []struct {
		name    string
		polling bool
		opt     dsync.Options
		waits   bool
		soon    time.Duration
	}{
		{name: "watch", opt: dsync.Options{AlwaysListen: true}},
		{name: "waits elsewhere", waits: true},
		{name: "heartbeat", soon: ttl * 4 / 10},
		{name: "polling", polling: true, soon: ttl * 4 / 10},
		{name: "polling with AlwaysListen", polling: true, opt: dsync.Options{AlwaysListen: true}, soon: ttl * 4 / 10},
	}
	for _, p := range parties {
		for _, notice := range notices {
			for _, forces := range []string{"Break", "ForceHold"} {
				for _, stops := range []bool{true, false} {
					if forces == "ForceHold" && p.force == nil {
						continue
					}
					inBubble(t, fmt.Sprintf("%s of a %s, %s, stops %t", forces, p.name, notice.name, stops), func(t *testing.T) {
						store := dsynctest.NewMemory()
						store.Polling = notice.polling
						var hooked []dsync.HoldInfo
						opt := notice.opt
						opt.Hooks = &dsync.Hooks{Lost: func(l dsync.HoldInfo) { hooked = append(hooked, l) }}
						a, b := newSession(t, store, &opt), newSession(t, store, nil)
						other := newSession(t, store, nil).Mutex("other")
						lock(t, other)
						if notice.waits {
							ctx, cancel := context.WithCancel(background)
							w := waitAt(t, store, "other", 1, a.Mutex("other").LockContext, ctx)
							defer func() { cancel(); <-w }()
						}
						h := p.take(t, a)
						time.Sleep(testkit.Draw(t).Below(ttl))
						lost := closedAt(h.lost)

						var next *holding
						var won <-chan ended
						began := time.Now()
						if forces == "Break" {
							won = async(func() (err error) {
								ctx, cancel := context.WithTimeout(background, 5*time.Minute)
								defer cancel()
								get := p.hold
								if p.name == "reader" { // another reader could hold the key at the same time
									get = parties[2].hold
								}
								wait := async(func() (err error) { next, err = get(context.WithoutCancel(ctx), b); return })
								time.Sleep(20 * time.Millisecond)
								began = time.Now()
								if err := admin.New(newSession(t, store, nil)).Break(ctx, "k"); err != nil {
									return err
								}
								return (<-wait).err
							})
						} else {
							won = async(func() (err error) { next, err = p.force(b)(background); return })
						}

						notified := <-lost
						if d := notified.Sub(began); d > notice.soon {
							t.Errorf("the holder was notified after %v, want within %v", d, notice.soon)
						}
						free := notified.Add(grace)
						if stops {
							free = notified.Add(grace / 3)
							time.Sleep(grace / 3)
							wantErr(t, "unlock", h.done(), dsync.ErrLost, dsync.ErrRevoked)
						}
						w := <-won
						if w.err != nil {
							t.Fatal(w.err)
						}
						late := 10 * time.Millisecond
						if notice.polling {
							late = 600 * time.Millisecond
						}
						if d := w.at.Sub(free); d < 0 || d > late {
							t.Errorf("the next holder got the key %v after it should have been free", d)
						}
						if isClosed(next.lost) {
							t.Error("the next holder was notified as well")
						}
						if !stops {
							wantErr(t, "late unlock", h.done(), dsync.ErrLost, dsync.ErrRevoked)
							if isClosed(next.lost) || len(holders(t, store, "k")) != 1 {
								t.Error("the late unlock freed the next holder's hold")
							}
						}
						synctest.Wait()
						if len(hooked) != 1 || hooked[0].Key != "k" || hooked[0].Token == 0 ||
							!errors.Is(hooked[0].Cause, dsync.ErrLost) || !errors.Is(hooked[0].Cause, dsync.ErrRevoked) {
							t.Errorf("Hooks.Lost was called with %+v, want one call with the key, a token and the revocation", hooked)
						}
						if err := next.done(); err != nil {
							t.Errorf("unlock by the next holder: %v", err)
						}
						// The first holder's session continues, and no revocation is left.
						time.Sleep(ttl)
						if a.ID() == "" || revocations(t, store, a.ID()) != 0 {
							t.Errorf("session %q has %d revocations; want a session that was not lost, without revocations", a.ID(), revocations(t, store, a.ID()))
						}
						if p.name != "once" { // the Once is sealed by now
							again := p.take(t, a)
							time.Sleep(ttl)
							if isClosed(again.lost) {
								t.Error("a later hold was notified as well")
							}
							again.done()
						}
					})
				}
			}
		}
	}
}

// Promise 9: an unreachable holder keeps its key until its session has lapsed. Lost closes at least a grace earlier.
func TestForceWaitsForAnUnreachableHolder(t *testing.T) {
	for _, forces := range []string{"Break", "ForceHold"} {
		for _, expired := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, known to have expired %t", forces, expired), func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := newFaulty(t, store, nil)
				a := newSession(t, faulty, &dsync.Options{AlwaysListen: true})
				b := newSession(t, store, nil)
				mu := a.Mutex("k")
				lock(t, mu)
				lock(t, a.Mutex("other"))
				lost := closedAt(mu.Lost())
				time.Sleep(testkit.Draw(t).Below(ttl))
				faulty.Cut()
				m, _, err := storecmd.Members(background, store, a.ID())
				noErr(t, err)
				lapses := m[0].LastHeartbeat.Add(ttl)
				if expired { // b expires the session to get another key
					lock(t, b.Mutex("other"))
					lapses = time.Now()
				}
				if forces == "Break" {
					noErr(t, admin.New(b).Break(background, "k"))
					if err := errOf(b.Mutex("k").TryHold(background)); err != nil {
						t.Errorf("after Break: %v", err)
					}
				} else if err := errOf(b.Mutex("k").ForceHold(background)); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(lapses); d < 0 || d > 20*time.Millisecond {
					t.Errorf("the key was taken %v after the holder's session lapsed", d)
				}
				if d := time.Since(<-lost); d < grace {
					t.Errorf("the key was taken %v after Lost closed, want at least the grace of %v", d, grace)
				}
			})
		}
	}
}

// Promise 9: Lost closes at least a grace before anyone else holds the key, whatever the network does to the holder and
// to the process that takes the key by force.
func TestForceNeverTakesWithoutNotifying(t *testing.T) {
	for i := range trials() {
		seed := uint64(i)
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			store := dsynctest.NewMemory()
			store.Polling = r.IntN(4) == 0
			bad := func(n uint64) *dsynctest.Faulty {
				r := rand.New(rand.NewPCG(seed, n))
				begin, one := time.Now().Add(ttl/10), 3+r.IntN(5)
				return newFaulty(t, store, func(q dsynctest.Request) dsynctest.Fault {
					f := dsynctest.Fault{Delay: time.Duration(r.Int64N(int64(ttl / 20)))}
					if time.Now().After(begin) {
						f.LoseRequest, f.LoseReply = r.IntN(one) == 0, r.IntN(one) == 0
						if r.IntN(one) == 0 {
							f.Again = time.Duration(r.Int64N(int64(ttl)))
						}
					}
					return f
				})
			}
			fa, fb := bad(1), bad(2)
			a := newSession(t, fa, &dsync.Options{AlwaysListen: r.IntN(2) == 0})
			b := newSession(t, fb, nil)
			mu := a.Mutex("k")
			lock(t, mu)
			lost := closedAt(mu.Lost())
			time.Sleep(time.Duration(r.Int64N(int64(ttl))))
			if r.IntN(4) == 0 {
				fa.Cut()
			}
			acquire := b.Mutex("k").ForceHold
			if r.IntN(2) == 0 {
				broken := breakKey(b)
				acquire = b.Mutex("k").Hold // on the worst of these networks this takes minutes
				defer func() { <-broken }()
			}
			next, err := acquire(background)
			noErr(t, err)
			taken := time.Now()
			synctest.Wait()
			select {
			case at := <-lost:
				if d := taken.Sub(at); d < grace {
					t.Errorf("seed %d: the key was taken %v after Lost closed, want at least %v", seed, d, grace)
				}
			default:
				t.Errorf("seed %d: the key was taken while Lost was open", seed)
			}
			fa.Heal()
			mu.Unlock()
			if h := holders(t, store, "k"); len(h) != 1 || h[0].Session == a.ID() {
				t.Errorf("seed %d: holders are %v, want one, of the session that took the key", seed, h)
			}
			fa.Close()
			fb.Close()
			next.Release(background)
			time.Sleep(2 * ttl)
			// Whatever lost sessions have left in the store blocks nobody.
			if err := errOf(newSession(t, store, nil).Mutex("k").TryHold(background)); err != nil {
				t.Errorf("seed %d: a try of the key at the end: %v", seed, err)
			}
		})
	}
}
