package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// locks are the locks with LockChan, each with its LockChan and Unlock.
var locks = map[string]func(s *dsync.Session) (lock func(context.Context) <-chan bool, unlock func(), held func() bool){
	"Mutex": func(s *dsync.Session) (func(context.Context) <-chan bool, func(), func() bool) {
		m := s.Mutex("k")
		return m.LockChan, m.Unlock, m.Held
	},
	"RWMutex": func(s *dsync.Session) (func(context.Context) <-chan bool, func(), func() bool) {
		rw := s.RWMutex("k")
		return rw.LockChan, rw.Unlock, rw.Held
	},
	"readers": func(s *dsync.Session) (func(context.Context) <-chan bool, func(), func() bool) {
		rw := s.RWMutex("k")
		return rw.RLockChan, rw.RUnlock, func() bool { return rw.RToken() > 0 }
	},
	"Semaphore": func(s *dsync.Session) (func(context.Context) <-chan bool, func(), func() bool) {
		m := s.Semaphore("k", 2)
		return func(ctx context.Context) <-chan bool { return m.AcquireChan(ctx, 2) }, func() { m.Release(2) }, func() bool { return m.Token() > 0 }
	},
}

// LockChan in a select: the channel receives when the key is held, and not before.
func TestLockChan(t *testing.T) {
	for name, of := range locks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				_, _, release := holder(t, newSession(t, memory, nil), name)
				lock, unlock, held := of(newSession(t, memory, nil))
				locked := lock(background)
				select {
				case <-locked:
					t.Fatal("received while another process held the key")
				case <-time.After(time.Minute):
				}
				release()
				select {
				case ok := <-locked:
					if !ok || !held() {
						t.Errorf("received %t, held %t, want both true", ok, held())
					}
				case <-time.After(time.Minute):
					t.Fatal("not received after the key was free")
				}
				if ok := <-locked; ok {
					t.Error("received twice")
				}
				unlock()
			})
		})
	}
}

// holder holds the key as the kind of locks[name], for writing, and returns how to release it.
func holder(t *testing.T, s *dsync.Session, name string) (func(context.Context) <-chan bool, func() bool, func()) {
	t.Helper()
	if name == "readers" {
		name = "RWMutex"
	}
	lock, unlock, held := locks[name](s)
	if ok := <-lock(background); !ok || !held() {
		t.Fatalf("received %t, held %t, want both true", ok, held())
	}
	return lock, held, unlock
}

// A lock that nobody received is released when its ctx ends, and the channel is closed.
func TestUnreceivedLockIsReleased(t *testing.T) {
	for name, of := range locks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				lock, _, held := of(newSession(t, memory, nil))
				ctx, cancel := context.WithCancel(background)
				locked := lock(ctx)
				time.Sleep(time.Second)
				if !held() {
					t.Fatal("not held though the key was free")
				}
				cancel()
				synctest.Wait()
				if ok, open := <-locked; ok || open {
					t.Errorf("received %t, open %t after ctx had ended, want a closed channel", ok, open)
				}
				if held() {
					t.Error("still held")
				}
				wait, stop := context.WithTimeout(background, time.Second)
				defer stop()
				other, unlock, _ := of(newSession(t, memory, nil))
				if !<-other(wait) {
					t.Fatal("the key was not released")
				}
				unlock()
			})
		})
	}
}

// If the hold is lost before anybody receives, the channel receives only when the key is held
// again. Meanwhile another process can hold it.
func TestUnreceivedLockIsLost(t *testing.T) {
	for name, of := range locks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				faulty := newFaulty(t, memory, nil)
				lock, unlock, held := of(newSession(t, faulty, nil))
				locked := lock(background)
				time.Sleep(time.Second)
				faulty.Cut()
				time.Sleep(2 * ttl)
				faulty.Heal()
				_, _, release := holder(t, newSession(t, memory, nil), name)
				select {
				case <-locked:
					t.Error("received although the hold was lost and another process holds the key")
				case <-time.After(time.Minute):
				}
				release()
				if ok := <-locked; !ok || !held() {
					t.Errorf("received %t, held %t after the key was free again, want both true", ok, held())
				}
				unlock()
				if held() {
					t.Error("held after Unlock")
				}
			})
		})
	}
}

// An unreceived lock gives way to Break like any holder, and when its session closes the channel is
// closed without a value.
func TestUnreceivedLockGivesWay(t *testing.T) {
	for name, of := range locks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				s, other := newSession(t, memory, nil), newSession(t, memory, nil)
				lock, _, held := of(s)
				locked := lock(background)
				time.Sleep(2 * time.Second)
				if err := admin.New(other).Break(background, "k"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if !held() {
					t.Error("not acquired again after a Break")
				}
				if err := s.Close(background); err != nil {
					t.Fatal(err)
				}
				if ok, open := <-locked; ok || open {
					t.Errorf("received %t, open %t after Close, want a closed channel", ok, open)
				}
			})
		})
	}
}

// The channel of a lock that fails is closed, and the log says why unless ctx ended.
func TestLockChanThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		mu := s.Mutex("k")
		lock(t, mu)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if <-s.Mutex("k").LockChan(ctx) {
			t.Error("locked what is held")
		}
		synctest.Wait() // for the log
		if strings.Contains(log.String(), "not locked") {
			t.Errorf("logged the end of ctx:\n%s", &log)
		}
		if <-s.RWMutex("k").RLockChan(background) || <-s.Semaphore("s", 2).AcquireChan(background, 3) {
			t.Error("locked a key of another kind, or more than all of one")
		}
		synctest.Wait() // for the log
		if n := strings.Count(log.String(), "not locked"); n != 2 {
			t.Errorf("logged %d times, want twice:\n%s", n, &log)
		}
		mu.Unlock()
	})
}

// RDo calls its function with a context that ends with the read lock, and then unlocks.
func TestRDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		rw := newSession(t, f, nil).RWMutex("k")
		failed := errors.New("the work failed")
		err := rw.RDo(background, func(ctx context.Context) error {
			if rw.RToken() == 0 || ctx.Err() != nil {
				t.Errorf("token %d, ctx %v, want a hold", rw.RToken(), ctx.Err())
			}
			return failed
		})
		if err != failed || rw.RToken() != 0 {
			t.Errorf("RDo: %v, then token %d, want the error of the work and no hold", err, rw.RToken())
		}
		err = rw.RDo(background, func(ctx context.Context) error {
			f.Cut()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), dsync.ErrLost) {
				t.Errorf("cause %v, want ErrLost", context.Cause(ctx))
			}
			return nil
		})
		wantErr(t, "RDo of a hold that was lost", err, dsync.ErrLost)
		f.Heal()

		wlock(t, rw)
		ctx, cancel := rw.Context(background)
		defer cancel()
		if ctx.Err() != nil {
			t.Errorf("the writer's context has ended: %v", ctx.Err())
		}
		rw.Unlock()
		<-ctx.Done()
		ended, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wlock(t, rw)
		wantErr(t, "RDo of what is written", rw.RDo(ended, func(context.Context) error { t.Error("called"); return nil }), context.DeadlineExceeded)
		rw.Unlock()
	})
}
