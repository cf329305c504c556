package dsync_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 7: readers of one process share one claim and one token, even if they use different RWMutex values for the
// key. Only the first reader sends a command.
func TestReadersOfOneProcessShareOneClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		first := s.RWMutex("k")
		firstHold := take(t, first.RHold)
		before := store.Counts()
		done := []func(){func() { firstHold.Release(background) }}
		last := firstHold
		for i := range 100 {
			rw := first
			if i%2 == 0 {
				rw = s.RWMutex("k")
			}
			if i%3 > 0 {
				if !rw.TryRLock() {
					t.Fatal("TryRLock failed while another reader held the key")
				}
				done = append(done, rw.RUnlock)
				continue
			}
			h := take(t, rw.RHold)
			if h.Token() != firstHold.Token() {
				t.Errorf("a reader has token %d, the first one %d", h.Token(), firstHold.Token())
			}
			last, done = h, append(done, func() { h.Release(background) })
		}
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Token != firstHold.Token() {
			t.Errorf("101 readers of one process have the claims %v, want one", h)
		}
		for _, done := range done[:len(done)-1] {
			if isClosed(last.Lost()) {
				t.Fatal("Lost closed while a reader still held the key")
			}
			done()
		}
		if d := store.Counts().Since(before); d.Writes != 0 || d.Total() != 1 { // the test's Load
			t.Errorf("100 readers that joined a reader took the commands %v, want only the test's Load", d.Commands)
		}
		lost := last.Lost()
		done[len(done)-1]()
		if !isClosed(lost) || len(holders(t, store, "k")) != 0 || !isClosed(last.Lost()) || last.Token() != 0 {
			t.Error("still held after the last release")
		}
	})
}

// Promise 7: readers that arrive at the same time share one request, even if none of them holds the key yet.
func TestConcurrentReadersRequestOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 5 * time.Millisecond}
		})
		rw := newSession(t, slow, nil).RWMutex("k")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				rw.RLock()
				time.Sleep(10 * time.Millisecond)
				rw.RUnlock()
			})
		}
		wg.Wait()
		if n := store.Counts().Commands[dsynctest.MethodAcquire]; n != 1 {
			t.Errorf("50 readers that arrived together sent %d Acquires, want 1", n)
		}
	})
}

// Overlapping readers share one hold for seconds if the store can notify, and for HandOffTime if it can't.
func TestOverlappingReadersCost(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			rw := newSession(t, store, nil).RWMutex("k")
			rlock(t, rw)
			before := store.Counts()
			const seconds = 60
			for range seconds * 100 {
				rlock(t, rw)
				time.Sleep(10 * time.Millisecond)
				rw.RUnlock()
			}
			asked := store.Counts().Since(before).Commands[dsynctest.MethodAcquire]
			if most := seconds/5 + 3; !polling && asked > most {
				t.Errorf("readers that overlap for %d s sent %d requests, want at most %d", seconds, asked, most)
			}
			// HandOffTime is 50ms.
			if least, most := seconds*10, seconds*20; polling && (asked < least || asked > most) {
				t.Errorf("readers that overlap for %d s sent %d requests, want %d to %d", seconds, asked, least, most)
			}
			rw.RUnlock()
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("holders left behind: %v", h)
			}
		})
	}
}

// When a writer in another process begins to wait, new readers stop sharing the hold: at once if the store can notify,
// otherwise after HandOffTime.
func TestReadersYieldToAWriterElsewhere(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			rs := newSession(t, store, &dsync.Options{AlwaysListen: true})
			rw, late := rs.RWMutex("k"), rs.RWMutex("k")
			rlock(t, rs.RWMutex("warm"))
			synctest.Wait() // the listener is ready
			h := take(t, rw.RHold)
			time.Sleep(30 * time.Millisecond)
			ws := newSession(t, store, nil)
			var writer *dsync.Hold
			locked := make(chan struct{})
			go func() { writer = take(t, ws.RWMutex("k").Hold); close(locked) }()
			synctest.Wait()
			switch shared := late.TryRLock(); {
			case shared && !polling:
				t.Error("a reader shared a hold although a writer waits for it")
				late.RUnlock()
			case !shared && polling:
				t.Error("a reader did not share a hold within HandOffTime, although its session can't know yet that a writer waits")
			case shared:
				late.RUnlock()
			}
			time.Sleep(30 * time.Millisecond)
			if late.TryRLock() {
				t.Error("after HandOffTime a hold was shared while a writer waited")
				late.RUnlock()
			}
			got := make(chan *dsync.Hold, 1)
			go func() { got <- take(t, late.RHold) }()
			synctest.Wait()
			if isClosed(locked) || len(got) != 0 {
				t.Error("the writer got the key before the first reader released it, or the late reader got the key before the writer")
			}
			before := h.Token()
			h.Release(background)
			<-locked
			wtoken := writer.Token()
			time.Sleep(time.Second)
			if len(got) != 0 {
				t.Error("a reader holds the key together with a writer")
			}
			writer.Release(background)
			after := <-got
			if token := after.Token(); before >= wtoken || wtoken >= token {
				t.Errorf("tokens of a reader, a writer, a reader: %d, %d, %d", before, wtoken, token)
			}
			after.Release(background)
		})
	}
}

// With a negative HandOffTime, readers don't share a hold: each sends a request of its own.
func TestReadersWithoutATurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{HandOffTime: -1, AlwaysListen: true})
		rlock(t, s.RWMutex("warm"))
		synctest.Wait() // the listener is ready
		rw := s.RWMutex("k")
		rlock(t, rw)
		rlock(t, rw)
		before := holders(t, store, "k")
		if len(before) != 2 {
			t.Fatalf("two readers hold %v, want 2 claims", before)
		}
		rw.RUnlock() // the older hold
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Token != max(before[0].Token, before[1].Token) {
			t.Errorf("the key is held by %v, then by %v, want the older hold released first", before, h)
		}
		rw.RUnlock()
	})
}

// If the listener was opened only after the claim was requested, it may have missed the notice that a writer waits.
// So readers don't share the hold beyond HandOffTime.
func TestReadersDoNotTrustALaterListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodListen {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, slow, &dsync.Options{AlwaysListen: true})
		rw, late := s.RWMutex("k"), s.RWMutex("k")
		rlock(t, rw)
		writer := newSession(t, store, nil).RWMutex("k")
		locked := make(chan struct{})
		go func() { writer.Lock(); close(locked) }()
		time.Sleep(2 * time.Second) // the listener is ready
		if late.TryRLock() {
			t.Error("after HandOffTime a hold was shared while a writer waited")
			late.RUnlock()
		}
		rw.RUnlock()
		<-locked
		writer.Unlock()
	})
}

// Short-lived readers that share a long hold leave nothing behind in memory, even if they use Lost and Context.
func TestReadersLeaveNothingBehind(t *testing.T) {
	for _, test := range []struct {
		name string
		last func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex // returns the RWMutex that the short-lived readers use
	}{
		{"of one RWMutex", func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex { return first }},
		{"of another RWMutex", func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex { return s.RWMutex("k") }},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			first := s.RWMutex("k")
			firstHold := take(t, first.RHold)
			token := firstHold.Token()
			read := func() {
				h := take(t, test.last(first, s).RHold)
				if h.Token() != token || isClosed(h.Lost()) {
					t.Error("the readers do not share a claim, or a reader's hold is lost")
				}
				ctx := h.Context(background)
				if h.Release(background); ctx.Err() == nil {
					t.Error("the context of a reader outlives its hold")
				}
				synctest.Wait() // the runtime never frees the memory of goroutines, so few may run at once
			}
			const readers = 10_000
			read()
			before := objects()
			for range readers {
				read()
			}
			if n := objects() - before; n > readers/2 {
				t.Errorf("%d former readers left %d objects in memory", readers, n)
			}
			firstHold.Release(background)
		})
	}
}

// objects returns the number of live heap objects.
func objects() int {
	synctest.Wait() // lets goroutines that are about to return do so
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapObjects)
}
