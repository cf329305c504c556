package integration_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

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
