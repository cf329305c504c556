package dsync_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// If ten thousand processes wait for a thousand keys, waiting and releasing cost no more commands than
// docs/operations.md promises. Without LEASEHOLD_LONG, both numbers are a tenth.
func TestFleetOfTenThousand(t *testing.T) {
	testkit.Large(t)
	sessions, keys := 10_000, 1000
	if os.Getenv("LEASEHOLD_LONG") == "" {
		sessions, keys = 1000, 100
	}
	bubble(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		store := dsynctest.NewMemory()
		open := func() *dsync.Session {
			s, err := dsync.New(store, &dsync.Options{TTL: ttl, Retention: -1})
			noErr(t, err)
			return s
		}
		var before, after runtime.MemStats
		var held []*dsync.Mutex
		var holds []*dsync.Session
		for i := range keys {
			s := open()
			mu := s.Mutex(fmt.Sprint("key ", i))
			lock(t, mu)
			held, holds = append(held, mu), append(holds, s)
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		ctx, cancel := context.WithCancel(background)
		var wg sync.WaitGroup
		got := make(chan *dsync.Mutex, sessions)
		var waits []*dsync.Session
		for i := range sessions {
			s := open()
			waits = append(waits, s)
			wg.Go(func() {
				if mu := s.Mutex(fmt.Sprint("key ", i%keys)); mu.LockContext(ctx) == nil {
					got <- mu
				}
			})
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		runtime.GC()
		runtime.ReadMemStats(&after)

		const quiet = time.Minute
		start := store.Counts()
		time.Sleep(quiet + time.Millisecond/2) // the store rounds times to whole milliseconds
		d := store.Counts().Since(start)
		all := sessions + keys
		beats, asks := d.Commands[dsynctest.MethodHeartbeat], d.Commands[dsynctest.MethodAcquire]
		t.Logf("%d sessions that wait for %d keys, %d that hold: in %v %d heartbeats, %d polls, %d reads, %d writes; %.0f KiB a waiter",
			sessions, keys, keys, quiet, beats, asks, d.Commands[dsynctest.MethodLiveness], d.Writes,
			float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/float64(sessions)/1024)
		if most := all * 7; beats > most {
			t.Errorf("%d heartbeats, want at most %d", beats, most)
		}
		if most := sessions * 3; asks > most { // two TTLs in a minute, and the jitter
			t.Errorf("%d polls, want at most %d", asks, most)
		}
		if d.Writes != beats {
			t.Errorf("%d writes but %d heartbeats: waiting causes writes", d.Writes, beats)
		}
		if n := d.Commands[dsynctest.MethodNotify]; n != 0 {
			t.Errorf("%d notices, although nothing happened", n)
		}

		start = store.Counts()
		for _, mu := range held {
			mu.Unlock()
		}
		synctest.Wait() // no time passes
		d = store.Counts().Since(start)
		if d.Total() != 2*keys || d.Commands[dsynctest.MethodRelease] != keys || d.Commands[dsynctest.MethodNotify] != keys || len(got) != keys {
			t.Errorf("%d releases: commands %v, and %d waiters got a key; want a Release, a Notify and one waiter each", keys, d.Commands, len(got))
		}
		cancel()
		wg.Wait()
		close(got)
		for mu := range got {
			mu.Unlock()
		}
		for _, s := range append(holds, waits...) {
			wg.Go(func() { s.Close(background) })
		}
		wg.Wait()
	})
}
