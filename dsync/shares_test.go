package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A share is a number of units of the key "k", and a way to hold them.
type share struct {
	units int64
	hold  func(context.Context) (*dsync.Hold, error)
}

// Several goroutines in several processes hold parts of a key, or all of it, at random times. Together they never have
// more than there is, but some hold it together. Who holds all of it has a token that is greater than all earlier ones.
func TestHoldersNeverHaveMoreThanThereIs(t *testing.T) {
	for kind, c := range map[string]struct {
		limit    int64
		together int // how many holders there must have been at a time
		shares   func(*dsync.Session) []share
	}{
		"mutex": {1, 1, func(s *dsync.Session) []share {
			return []share{{1, s.Mutex("k").Hold}, {1, s.Mutex("k").Hold}}
		}},
		"rwmutex": {16, 2, func(s *dsync.Session) []share { // as many units as there are goroutines that may read
			return []share{{1, s.RWMutex("k").RHold}, {1, s.RWMutex("k").RHold}, {16, s.RWMutex("k").Hold}}
		}},
		"semaphore": {5, 2, func(s *dsync.Session) (shares []share) {
			shared := s.Semaphore("k", 5)
			for n := range int64(5) {
				shares = append(shares, share{n + 1, func(ctx context.Context) (*dsync.Hold, error) { return s.Semaphore("k", 5).Hold(ctx, n+1) }})
			}
			one := share{1, func(ctx context.Context) (*dsync.Hold, error) { return shared.Hold(ctx, 1) }}
			return append(shares, one, one, one)
		}},
	} {
		for name, polling := range deliveries {
			inBubble(t, kind+" "+name, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				var (
					mu            sync.Mutex
					units         int64
					holders, most int
					whole, last   int64 // the greatest token of a hold of all units, and of any hold
					wg            sync.WaitGroup
				)
				for p := range 4 {
					s := newSession(t, store, nil)
					shares := c.shares(s)
					for g := range 4 {
						r := rand.New(rand.NewPCG(uint64(p), uint64(g)))
						wg.Go(func() {
							for range 20 {
								share := shares[r.IntN(len(shares))]
								h := take(t, share.hold)
								mu.Lock()
								if units += share.units; units > c.limit {
									t.Errorf("%d of %d units are held", units, c.limit)
								}
								holders++
								most = max(most, holders)
								if h.Token() <= whole || share.units == c.limit && h.Token() <= last {
									t.Errorf("%d units were granted with token %d, after %d, and %d for all units", share.units, h.Token(), last, whole)
								}
								last = max(last, h.Token())
								if share.units == c.limit {
									whole = h.Token()
								}
								mu.Unlock()
								time.Sleep(time.Duration(1+r.IntN(4)) * time.Millisecond)
								mu.Lock()
								units -= share.units
								holders--
								mu.Unlock()
								h.Release(background)
							}
						})
					}
				}
				wg.Wait()
				if most < c.together {
					t.Errorf("at most %d held the key at a time, want %d at some time", most, c.together)
				}
				wantFree(t, store, "k")
			})
		}
	}
}

// B36: a cancelled waiter leaves nothing behind, whether it waited in its process or in the store's queue. The waiter
// behind the cancelled ones is served at once if it fits beside the holder; otherwise it keeps waiting.
func TestCancelledWaitersLeaveNothing(t *testing.T) {
	failing := run(errors.ErrUnsupported)
	for kind, c := range map[string]struct {
		held, first, second, behind taking
		fits                        bool
	}{
		"mutex":     {takes("mutex"), takes("mutex"), takes("mutex"), takes("mutex"), false},
		"rwmutex":   {takes("reader"), takes("writer"), takes("reader"), takes("reader"), true},
		"semaphore": {part(2, 3), part(3, 3), part(3, 3), part(1, 3), true},
		"once":      {failing, failing, failing, failing, false},
	} {
		for sessions := 1; sessions <= 3; sessions++ {
			inBubble(t, fmt.Sprintf("%s, %d sessions", kind, sessions), func(t *testing.T) {
				store := dsynctest.NewMemory()
				var all []*dsync.Session
				for range sessions {
					all = append(all, newSession(t, store, nil))
				}
				of := func(i int) *dsync.Session { return all[i%sessions] }
				held := taken(t, of(0), c.held)
				time.Sleep(100 * time.Millisecond) // longer than HandOffTime, so that later readers can't share this hold
				ctx, cancel := context.WithCancel(background)
				waits := func(ctx context.Context, s *dsync.Session, take taking) (*holding, <-chan error) {
					h, done := new(holding), make(chan error, 1)
					go func() {
						got, err := take(ctx, s)
						if err == nil {
							*h = *got
						}
						done <- err
					}()
					synctest.Wait()
					return h, done
				}
				_, first := waits(ctx, of(1), c.first)
				_, second := waits(ctx, of(2), c.second)
				last, behind := waits(within(t), of(2), c.behind)
				if len(behind) != 0 {
					t.Fatal("the last waiter overtook the others")
				}
				cancel()
				wantErr(t, "the first waiter", <-first, context.Canceled)
				wantErr(t, "the second waiter", <-second, context.Canceled)
				_, err := c.behind(ctx, of(0))
				wantErr(t, "with an ended ctx", err, context.Canceled)
				synctest.Wait()
				if served := len(behind) == 1; served != c.fits {
					t.Errorf("the waiter behind the cancelled ones was served: %t, want %t", served, c.fits)
				}
				held.done()
				if err := <-behind; err != nil {
					t.Fatalf("the waiter behind the cancelled ones: %v", err)
				}
				last.done()
				synctest.Wait()
				wantFree(t, store, "k")
				taken(t, of(0), c.first).done()
			})
		}
	}
}

// B05, B26, B32, L6, promise 8: within a process, whoever would be excluded by lost holds waits until the last of them is
// released, and its tries fail, although the store would grant the key. Units of a semaphore, and read holds, exclude
// nobody once they are lost; the next holder gets them after the grace. A late release ends no newer hold.
func TestLostHoldsInTheirProcess(t *testing.T) {
	for name, c := range map[string]struct {
		lost      []taking
		next      taking
		waits     bool
		try       func(*dsync.Session) error // fails if next waits
		elsewhere taking                     // another process gets this meanwhile
		beside    bool                       // next excludes nobody
	}{
		"mutex": {
			lost: []taking{takes("mutex")}, next: takes("mutex"), waits: true,
			try: func(s *dsync.Session) error { return errOf(s.Mutex("k").TryHold(background)) },
		},
		"readers by a writer": {
			lost: []taking{takes("reader"), takes("reader")}, next: takes("writer"), waits: true, elsewhere: takes("reader"),
			try: func(s *dsync.Session) error { _, _, err := dsync.TryLockAll(background, s.RWMutex("k")); return err },
		},
		"a writer by a reader": {lost: []taking{takes("writer")}, next: takes("reader"), waits: true, elsewhere: takes("reader")},
		"readers by a reader":  {lost: []taking{takes("reader"), takes("reader")}, next: takes("reader"), beside: true},
		"units":                {lost: []taking{part(3, 3)}, next: part(3, 3)},
	} {
		inBubble(t, name, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			faulty := newFaulty(t, memory, nil)
			s := newSession(t, faulty, nil)
			var lost []*holding
			for _, take := range c.lost {
				lost = append(lost, taken(t, s, take))
			}
			faulty.Cut()
			<-lost[0].lost
			notified := time.Now()
			faulty.Heal()
			if c.try != nil {
				time.Sleep(2 * ttl)
				wantErr(t, "a try while nobody waits", c.try(s), dsync.ErrHeld)
			}
			var next *holding
			got := async(func() (err error) { next, err = c.next(background, s); return err })
			if c.elsewhere != nil {
				taken(t, newSession(t, memory, nil), c.elsewhere).done()
			}
			for _, h := range lost {
				time.Sleep(5 * ttl)
				if served := len(got) == 1; served == c.waits {
					t.Fatalf("the next holder was served before the lost holds were released: %t, want %t", served, !c.waits)
				}
				if c.try != nil {
					wantErr(t, "a try while another waits", c.try(s), dsync.ErrHeld)
				}
				wantErr(t, "late release", h.done(), dsync.ErrLost)
			}
			e := <-got
			noErr(t, e.err)
			if d := e.at.Sub(notified); !c.beside && d < grace || !c.waits && d > 2*ttl {
				t.Errorf("the next holder was served %v after the loss, want at least the grace of %v, and at most two TTLs if it did not have to wait", d, grace)
			}
			time.Sleep(ttl)
			if isClosed(next.lost) || !c.beside && len(holders(t, memory, "k")) != 1 {
				t.Error("the late release of a lost hold ended the next one")
			}
			next.done()
			if c.try != nil {
				noErr(t, c.try(s))
			}
		})
	}
}
