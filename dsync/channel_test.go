package dsync_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A HoldChan can be used in a select. The channel delivers the hold only once the key is held.
func TestHoldChan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		other := take(t, newSession(t, memory, nil).Mutex("k").Hold)
		acquired := newSession(t, memory, nil).Mutex("k").HoldChan(background)
		select {
		case <-acquired:
			t.Fatal("received a hold while another process held the key")
		case <-time.After(time.Minute):
		}
		other.Release(background)
		select {
		case h := <-acquired:
			if h == nil || h.Token() == 0 {
				t.Fatalf("received %v, want a hold", h)
			}
			defer h.Release(background)
		case <-time.After(time.Minute):
			t.Fatal("received no hold after the key was free")
		}
		if h := <-acquired; h != nil {
			t.Error("received a second hold")
		}
	})
}

// If nobody has received the hold when ctx ends, HoldChan releases it and closes the channel.
func TestUnreceivedHoldIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(background)
		acquired := newSession(t, memory, nil).Mutex("k").HoldChan(ctx)
		time.Sleep(time.Second)
		if len(holders(t, memory, "k")) != 1 {
			t.Fatal("the key was free, but HoldChan has not acquired it")
		}
		cancel()
		synctest.Wait()
		if h, open := <-acquired; h != nil || open {
			t.Errorf("received %v, open %t after ctx had ended, want a closed channel", h, open)
		}
		wantFree(t, memory, "k")
	})
}

// If the hold is lost before anybody receives it, the channel delivers nothing until the key is held again.
// Meanwhile another process can hold the key.
func TestUnreceivedHoldIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		acquired := newSession(t, faulty, nil).Mutex("k").HoldChan(background)
		time.Sleep(time.Second)
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		other := take(t, newSession(t, memory, nil).Mutex("k").Hold)
		select {
		case <-acquired:
			t.Error("received a value although the hold was lost and another process holds the key")
		case <-time.After(time.Minute):
		}
		other.Release(background)
		h := <-acquired
		if h == nil || h.Token() == 0 {
			t.Fatalf("received %v after the key was free again, want a hold", h)
		}
		if err := h.Release(background); err != nil {
			t.Error(err)
		}
	})
}

// Break ends an unreceived hold like any other. When the session closes, the channel is closed without a value.
func TestUnreceivedHoldGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s, other := newSession(t, memory, nil), newSession(t, memory, nil)
		acquired := s.Mutex("k").HoldChan(background)
		time.Sleep(2 * time.Second)
		before := holders(t, memory, "k")
		if err := admin.New(other).Break(background, "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if now := holders(t, memory, "k"); len(before) != 1 || len(now) != 1 || now[0].Token <= before[0].Token {
			t.Errorf("holders before a Break %v, after it %v, want one each, the second with a greater token", before, now)
		}
		if err := s.Close(background); err != nil {
			t.Fatal(err)
		}
		if h, open := <-acquired; h != nil || open {
			t.Errorf("received %v, open %t after Close, want a closed channel", h, open)
		}
	})
}

// If HoldChan fails, its channel is closed, and the reason is logged unless ctx has ended.
func TestHoldChanThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		rw := s.RWMutex("rw")
		mu := s.Mutex("k")
		lock(t, mu)
		rw.Lock()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if h := <-s.Mutex("k").HoldChan(ctx); h != nil {
			t.Error("HoldChan acquired a key that is held")
		}
		synctest.Wait() // for the log
		if strings.Contains(log.String(), "not acquired") {
			t.Errorf("logged the end of ctx:\n%s", &log)
		}
		if h := <-s.Mutex("rw").HoldChan(background); h != nil {
			t.Error("HoldChan acquired a key of another kind")
		}
		synctest.Wait() // for the log
		if n := strings.Count(log.String(), "not acquired"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, &log)
		}
		mu.Unlock()
		rw.Unlock()
	})
}

// The context of a reader's hold ends when that hold is lost or released. It does not end when other readers of the
// same claim release their holds.
func TestReaderContextEndsWithItsHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		rw := newSession(t, f, nil).RWMutex("k")
		first, second := take(t, rw.RHold), take(t, rw.RHold)
		one, two := first.Context(background), second.Context(background)
		first.Release(background)
		if one.Err() == nil || two.Err() != nil {
			t.Errorf("after the first reader's release: its context %v, the other's %v", one.Err(), two.Err())
		}
		f.Cut()
		<-two.Done()
		wantErr(t, "cause", context.Cause(two), dsync.ErrLost)
		wantErr(t, "Release of a hold that was lost", second.Release(background), dsync.ErrLost)
		f.Heal()
	})
}
