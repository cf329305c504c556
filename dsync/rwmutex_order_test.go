package dsync_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 6: readers and writers are served in one FIFO order. Readers that are adjacent in the queue hold the key
// together.
func TestRWMutexServesInOrder(t *testing.T) {
	for _, sessions := range []int{1, 7} {
		inBubble(t, fmt.Sprint(sessions, " sessions"), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var all []*dsync.Session
			for range sessions {
				all = append(all, newSession(t, store, nil))
			}
			first := all[0].RWMutex("k")
			rlock(t, first)
			var (
				mu    sync.Mutex
				order []string
				wg    sync.WaitGroup
			)
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what)
			}
			for i, who := range []string{"w", "r", "r", "w", "w", "r"} {
				rw := all[(i+1)%sessions].RWMutex("k")
				wg.Go(func() {
					name := fmt.Sprint(who, i)
					if who == "w" {
						rw.Lock()
						defer rw.Unlock()
					} else {
						rw.RLock()
						defer rw.RUnlock()
					}
					note("+" + name)
					time.Sleep(time.Duration(i+1) * 10 * time.Millisecond)
					note("-" + name)
				})
				time.Sleep(10 * time.Millisecond)
			}
			if late := all[0].RWMutex("k"); late.TryRLock() {
				t.Error("TryRLock overtook a waiting writer")
				late.RUnlock()
			}
			first.RUnlock()
			wg.Wait()
			// Either of the two readers may be first.
			got := strings.Replace(strings.Join(order, " "), "+r2 +r1", "+r1 +r2", 1)
			if want := "+w0 -w0 +r1 +r2 -r1 -r2 +w3 -w3 +w4 -w4 +r5 -r5"; got != want {
				t.Errorf("waiters were served in the order %s, want %s", got, want)
			}
		})
	}
}

// wantNoStarving has every Locker in crowd lock continuously, for d at a time. Meanwhile it locks the single Locker
// ten times, and checks that none of these ten Locks takes long.
func wantNoStarving(t *testing.T, polling bool, one sync.Locker, d time.Duration, crowd []sync.Locker) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, l := range crowd {
		wg.Go(func() {
			time.Sleep(d * time.Duration(i) / time.Duration(len(crowd)))
			for !isClosed(stop) {
				l.Lock()
				time.Sleep(d)
				l.Unlock()
			}
		})
	}
	time.Sleep(10 * time.Second)
	for range 10 {
		starved := time.AfterFunc(5*time.Minute, func() { panic("not locked within five minutes") })
		start := time.Now()
		one.Lock()
		starved.Stop()
		// The Lock of the single Locker waits only for callers that hold the key or called earlier. Without notices,
		// it also waits for callers that arrive within HandOffTime, and for up to one poll interval.
		if w := time.Since(start); !polling && w > 100*time.Millisecond || w > 1500*time.Millisecond {
			t.Errorf("waited %v for %d callers that hold the key for %v each", w, len(crowd), d)
		}
		one.Unlock()
		time.Sleep(time.Second)
	}
	close(stop)
	wg.Wait()
}

// Readers that overlap continuously don't starve a writer, whether they are in its process, in one other process, or in
// many.
func TestWriterIsNotStarved(t *testing.T) {
	for name, polling := range deliveries {
		for _, readers := range []string{"same process", "one other process", "many processes"} {
			inBubble(t, name+" "+readers, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				w, other := newSession(t, store, nil), newSession(t, store, nil)
				var crowd []sync.Locker
				for range 8 {
					s := other
					switch readers {
					case "same process":
						s = w
					case "many processes":
						s = newSession(t, store, nil)
					}
					crowd = append(crowd, s.RWMutex("k").RLocker())
				}
				wantNoStarving(t, polling, w.RWMutex("k"), 80*time.Millisecond, crowd)
			})
		}
	}
}

// Writers that lock continuously don't starve a reader, whether they are in the reader's process or in others.
func TestReaderIsNotStarved(t *testing.T) {
	for name, polling := range deliveries {
		for _, same := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s same process %t", name, same), func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				r, other := newSession(t, store, nil), newSession(t, store, nil)
				if same {
					other = r
				}
				var crowd []sync.Locker
				for range 4 {
					crowd = append(crowd, other.RWMutex("k"))
				}
				wantNoStarving(t, polling, r.RWMutex("k").RLocker(), 10*time.Millisecond, crowd)
			})
		}
	}
}
