package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 7: readers of one process share one claim and one token. All but the first of them cost
// nothing, however many values name the key.
func TestReadersOfOneProcessShareOneClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, unswept())
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
					t.Fatal("TryRLock failed beside a reader")
				}
				done = append(done, rw.RUnlock)
				continue
			}
			h := take(t, rw.RHold)
			if h.Token() != firstHold.Token() {
				t.Errorf("token %d beside %d", h.Token(), firstHold.Token())
			}
			last, done = h, append(done, func() { h.Release(background) })
		}
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Token != firstHold.Token() {
			t.Errorf("101 readers of one process hold as %v", h)
		}
		for _, done := range done[:len(done)-1] {
			if isClosed(last.Lost()) {
				t.Fatal("Lost closed with a reader in")
			}
			done()
		}
		if d := store.Counts().Since(before); d.Writes != 0 || d.Total() != 1 { // the test's Load
			t.Errorf("100 readers beside a reader took %v", d.Commands)
		}
		lost := last.Lost()
		done[len(done)-1]()
		if !isClosed(lost) || len(holders(t, store, "k")) != 0 || !isClosed(last.Lost()) || last.Token() != 0 {
			t.Error("still held after the last release")
		}
	})
}

// Promise 7: readers that come at once share one request, even if none of them holds the key yet.
func TestConcurrentReadersRequestOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		slow := newFaulty(t, store, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 5 * time.Millisecond}
		})
		rw := newSession(t, slow, unswept()).RWMutex("k")
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
			t.Errorf("50 readers that came at once sent %d Acquires, want 1", n)
		}
	})
}

// Overlapping readers share a hold for seconds at a time where the store notifies, and for a turn
// where it can't. They are never without a hold.
func TestOverlappingReadersCost(t *testing.T) {
	for name, polling := range deliveries {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				rw := newSession(t, store, unswept()).RWMutex("k")
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
				// A turn is 50ms.
				if least, most := seconds*10, seconds*20; polling && (asked < least || asked > most) {
					t.Errorf("readers that overlap for %d s sent %d requests, want %d to %d", seconds, asked, least, most)
				}
				rw.RUnlock()
				if h := holders(t, store, "k"); len(h) != 0 {
					t.Errorf("left behind: %v", h)
				}
			})
		})
	}
}

// Readers that could share a hold don't while a writer of another process waits: at once where the
// store notifies, after a turn where it can't.
func TestReadersYieldToAWriterElsewhere(t *testing.T) {
	for name, polling := range deliveries {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
					t.Error("shared a hold for which a writer waits")
					late.RUnlock()
				case !shared && polling:
					t.Error("within its turn a hold was not shared, although nobody can know of the writer")
				case shared:
					late.RUnlock()
				}
				time.Sleep(30 * time.Millisecond)
				if late.TryRLock() {
					t.Error("after its turn a hold was shared while a writer waited")
					late.RUnlock()
				}
				got := make(chan *dsync.Hold, 1)
				go func() { got <- take(t, late.RHold) }()
				synctest.Wait()
				if isClosed(locked) || len(got) != 0 {
					t.Error("a writer or a late reader is in with a reader and a writer before them")
				}
				before := h.Token()
				h.Release(background)
				<-locked
				wtoken := writer.Token()
				time.Sleep(time.Second)
				if len(got) != 0 {
					t.Error("a reader is in with a writer")
				}
				writer.Release(background)
				after := <-got
				if token := after.Token(); before >= wtoken || wtoken >= token {
					t.Errorf("tokens of a reader, a writer, a reader: %d, %d, %d", before, wtoken, token)
				}
				after.Release(background)
			})
		})
	}
}

// With a negative HandOffTime, which means a request for every hold, readers don't share.
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
			t.Fatalf("two readers without a turn hold %v, want 2 claims", before)
		}
		rw.RUnlock() // the older hold
		if h := holders(t, store, "k"); len(h) != 1 || h[0].Token != max(before[0].Token, before[1].Token) {
			t.Errorf("held by %v, then by %v, want the older hold released first", before, h)
		}
		rw.RUnlock()
	})
}

// A listener that was opened after the claim was requested may have missed a waiting writer, so the
// hold is not shared beyond its turn.
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
			t.Error("after its turn a hold was shared while a writer waited")
			late.RUnlock()
		}
		rw.RUnlock()
		<-locked
		writer.Unlock()
	})
}
