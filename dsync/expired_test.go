package dsync_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// crashed starts a session that locks the keys in held and waits for those in awaited. The function crash cuts the
// session off from the store, as if its process had crashed.
func crashed(t *testing.T, store driver.Store, held []string, awaited ...string) (crash func()) {
	t.Helper()
	f := newFaulty(t, store, nil)
	s := newSession(t, f, nil)
	for _, key := range held {
		lock(t, s.Mutex(key))
	}
	for _, key := range awaited {
		go s.Mutex(key).LockContext(background)
	}
	time.Sleep(20 * time.Millisecond)
	return f.Cut
}

// B06: a process waits for a hundred keys, and the process that holds them crashes. The waiting process gets all of the
// keys little more than a TTL after the crashed process's last heartbeat. The waiter that finds the session expired
// wakes all the others.
func TestEveryKeyOfACrashedProcessIsFreeInTime_B06(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		memory := dsynctest.NewMemory()
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
		}
		crash := crashed(t, memory, keys)
		const trip = 10 * time.Millisecond
		s := newSession(t, newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{ReplyDelay: trip}
		}), nil)
		began := time.Now()
		var wg sync.WaitGroup
		for _, key := range keys {
			wg.Go(func() {
				lock(t, s.Mutex(key))
				// One round trip expires the session; the other round trips acquire the keys, 8 at a time.
				if d := time.Since(began); d > ttl+(1+n/8+1)*trip {
					t.Errorf("%s was locked %v after the last heartbeat; the TTL is %v", key, d, ttl)
				}
			})
		}
		time.Sleep(ttl / 20) // all waiters are in the queue, and no heartbeat has been sent
		before := memory.Counts().Commands[dsynctest.MethodExpire]
		crash()
		wg.Wait()
		if n := memory.Counts().Commands[dsynctest.MethodExpire] - before; n != 1 {
			t.Errorf("%d commands to expire one session, want 1", n)
		}
	})
}

// B06: if the holder and the waiters ahead in the queue crash, the next waiter still gets the key in time. It may also
// wait for other keys of the crashed processes.
func TestKeyBehindCrashedWaitersIsFreeInTime_B06(t *testing.T) {
	for _, dead := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				crash := []func(){crashed(t, memory, []string{"k", "own0"})}
				for i := range dead {
					crash = append(crash, crashed(t, memory, []string{fmt.Sprint("own", i+1)}, "k"))
				}
				s := newSession(t, memory, nil)
				began := time.Now()
				for _, c := range crash {
					c()
				}
				var wg sync.WaitGroup
				wait := func(key string) {
					wg.Go(func() {
						lock(t, s.Mutex(key))
						if d := time.Since(began); d > ttl+time.Millisecond {
							t.Errorf("%s was locked %v after the crash; the TTL is %v", key, d, ttl)
						}
					})
				}
				wait("k")
				for i := range dead + 1 {
					wait(fmt.Sprint("own", i))
				}
				wg.Wait()
			})
		})
	}
}

// A try expires any number of lapsed waiters, although each reply names only the first few waiters.
func TestTryExpiresManySessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crash := []func(){crashed(t, memory, []string{"k"})}
		for range 29 {
			crash = append(crash, crashed(t, memory, nil, "k"))
		}
		for _, c := range crash {
			c()
		}
		time.Sleep(2 * ttl)
		if err := errOf(newSession(t, memory, nil).Mutex("k").TryHold(background)); err != nil {
			t.Errorf("try of a key whose holder and 29 waiters have crashed: %v", err)
		}
	})
}

// If two tries find the same lapsed holder, they share the result of one Expire. Until that result is known, neither
// reports the holder in an error.
func TestConcurrentTriesExpireTheSameSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crash := crashed(t, memory, []string{"k", "l"})
		crash()
		time.Sleep(2 * ttl)
		slow := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{ReplyDelay: 10 * time.Millisecond}
		})
		s := newSession(t, slow, nil)
		var wg sync.WaitGroup
		for _, key := range []string{"k", "l"} {
			wg.Go(func() {
				if err := errOf(s.Mutex(key).TryHold(background)); err != nil {
					t.Errorf("try of %s: %v", key, err)
				}
			})
		}
		wg.Wait()
	})
}
