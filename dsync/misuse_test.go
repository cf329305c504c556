package dsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// The methods of a zero value panic and say how to make one.
func TestZeroValues(t *testing.T) {
	var (
		mu       dsync.Mutex
		rw       dsync.RWMutex
		sem      dsync.Semaphore
		once     dsync.Once
		periodic dsync.Periodic
	)
	for kind, methods := range map[string][]func(){
		"Mutex": {mu.Lock, mu.Unlock, func() { mu.Lost() }, func() { mu.TryLock() }},
		"RWMutex": {
			rw.Lock, func() { rw.TryLock() }, func() { rw.LockContext(background) }, func() { rw.Hold(background) }, func() { rw.RHold(background) },
			rw.Unlock, func() { rw.Do(background, nil) }, rw.RLock, func() { rw.TryRLock() }, rw.RUnlock, func() { rw.RLocker().Lock() },
		},
		"Semaphore": {
			func() { sem.Acquire(background, 1) }, func() { sem.TryAcquire(1) }, func() { sem.Release(1) }, func() { sem.Hold(background, 1) },
			func() { sem.TryHold(background, 1) }, func() { sem.Do(background, 1, nil) }, func() { sem.Resize(background, 1) },
		},
		"Once":     {func() { once.Do(background, nil) }, func() { once.DoValue(background, nil) }, func() { once.Value(background) }},
		"Periodic": {func() { periodic.Do(background, at(1), nothing) }, func() { periodic.DoValue(background, at(1), nil) }, func() { periodic.Last(background) }},
	} {
		for i, method := range methods {
			wantPanic(t, fmt.Sprintf("method %d of a zero %s", i, kind), method, "zero "+kind, "Session."+kind)
		}
	}
}

// An invalid key, and an unlock of what is not locked, make the call panic, as in package sync.
func TestMisusePanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		for kind, open := range map[string]func(key string){
			"Mutex":     func(key string) { s.Mutex(key) },
			"RWMutex":   func(key string) { s.RWMutex(key) },
			"Semaphore": func(key string) { s.Semaphore(key, 1) },
			"Once":      func(key string) { s.Once(key) },
			"Periodic":  func(key string) { s.Periodic(key) },
		} {
			for _, key := range []string{"", strings.Repeat("x", 513)} {
				wantPanic(t, kind, func() { open(key) }, dsync.CheckKey(key).Error())
			}
		}
		mu, rw := s.Mutex("k"), s.RWMutex("rw")
		wantPanic(t, "Unlock", mu.Unlock, "dsync: unlock of unlocked mutex \"k\"")
		turn(mu)
		wantPanic(t, "Unlock", mu.Unlock, "unlocked")
		rlock(t, rw)
		rw.RUnlock()
		wantPanic(t, "RUnlock", rw.RUnlock, "not read-locked", `"rw"`)
		rlock(t, rw)
		wantPanic(t, "Unlock", rw.Unlock, "unlocked rwmutex")
		rw.RUnlock()
		wlock(t, rw)
		wantPanic(t, "RUnlock", rw.RUnlock, "not read-locked")
		rw.Unlock()
	})
}
