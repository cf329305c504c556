package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// When a key is sealed, only the first thousand claims in its queue are notified.
func TestMemorySealWakesAThousand(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	storecmd.Acquire(ctx, m, claim("k", "a", 1), true, nil, soon())
	for i := range 1010 {
		storecmd.Acquire(ctx, m, claim("k", "b", i), true, nil, soon())
	}
	_, notices, _ := storecmd.Release(ctx, m, claim("k", "a", 1), driver.Release{Seal: 1})
	for i, n := range notices {
		if n.Type != driver.NoticeWake || n.Session != "b" || n.Key != "k" || n.Claim != claim("k", "b", i).ID {
			t.Fatalf("notice %d: %+v, want NoticeWake of b's claim %d", i, n, i)
		}
	}
	if len(notices) != 1000 {
		t.Errorf("%d notices, want 1000", len(notices))
	}
}

// A command that changes nothing, such as a repeated Revoke, returns no notices. The exception is a repeated
// Acquire of the first claim in the queue, which returns a NoticeYield for each holder that yields.
func TestMemoryNotifiesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		holder, first, second := claim("k", "a", 1), claim("k", "b", 1), claim("k", "b", 2)
		holder.Yield = true
		m.Register(ctx, driver.Member{ID: "a", TTL: time.Hour})
		go m.Listen(ctx, "a", []string{"k"}, func(driver.Notice) {})
		synctest.Wait()
		const (
			grant, wake, yield = driver.NoticeGrant, driver.NoticeWake, driver.NoticeYield
			revoke, change     = driver.NoticeRevoke, driver.NoticeChange
		)
		acquire := func(c driver.Claim) []driver.Notice {
			_, n, _ := storecmd.Acquire(ctx, m, c, true, nil, soon())
			return n
		}
		release := func(o driver.Release) []driver.Notice {
			_, n, _ := storecmd.Release(ctx, m, holder, o)
			return n
		}
		for _, step := range []struct {
			name        string
			do          func() []driver.Notice
			once, again []driver.NoticeType
		}{
			{"hold", func() []driver.Notice { return acquire(holder) }, []driver.NoticeType{change}, nil},
			{"wait first", func() []driver.Notice { return acquire(first) }, []driver.NoticeType{yield, change}, []driver.NoticeType{yield}},
			{"wait second", func() []driver.Notice { return acquire(second) }, []driver.NoticeType{change}, nil},
			{"revoke", func() []driver.Notice {
				n, _ := m.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: holder.ID})
				return n
			}, []driver.NoticeType{revoke}, nil},
			{"publish", func() []driver.Notice {
				n, _ := storecmd.Publish(ctx, m, holder, 1, []byte("v"))
				return n
			}, []driver.NoticeType{change}, nil},
			{"extend", func() []driver.Notice { storecmd.Extend(ctx, m, holder, 1); return nil }, nil, nil},
			{"keep", func() []driver.Notice { return release(driver.Release{Keep: time.Hour}) }, []driver.NoticeType{wake, change}, nil},
			{"resize", func() []driver.Notice {
				n, _ := storecmd.Resize(ctx, m, "k", holder.Kind, 1, 2)
				return n
			}, []driver.NoticeType{grant, change}, nil},
			{"release", func() []driver.Notice { return release(driver.Release{}) }, []driver.NoticeType{grant, change}, nil},
		} {
			for i, want := range [][]driver.NoticeType{step.once, step.again} {
				var got []driver.NoticeType
				for _, n := range step.do() {
					got = append(got, n.Type)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, time %d: notices of types %v, want %v", step.name, i+1, got, want)
				}
			}
		}
	})
}

// When a Listen ends, the Memory forgets the listener for all of its keys. It does so even if the caller has changed
// the slice of keys in the meantime, or if the slice contained a key twice.
func TestMemoryForgetsListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var got []driver.Notice
		keys, done := []string{"k", "k"}, make(chan error)
		go func() { done <- m.Listen(ctx, "a", keys, func(n driver.Notice) { got = append(got, n) }) }()
		synctest.Wait()
		keys[0], keys[1] = "changed", "by the caller"
		send := func(n int) (returned int) {
			_, notices, _ := storecmd.Acquire(t.Context(), m, claim("k", "b", n), true, nil, soon())
			m.Notify(t.Context(), notices)
			m.Notify(t.Context(), []driver.Notice{{Type: driver.NoticeRevoke, Session: "a", Key: "k", Claim: "a.1"}, {Type: driver.NoticeChange, Key: "changed"}})
			synctest.Wait()
			return len(notices)
		}
		if n := send(1); n != 1 || len(got) != 3 || got[1].Type != driver.NoticeChange || got[2].Type != driver.NoticeRevoke {
			t.Errorf("%d notices returned, heard %+v; want the change returned, and heard once before the revocation", n, got)
		}
		cancel()
		<-done
		if n := send(2); n != 0 || len(got) != 3 {
			t.Errorf("%d notices returned, heard %+v after the end of the Listen; want none", n, got[3:])
		}
	})
}

// A slow listener loses no notices and delays no other listener.
func TestMemoryListenQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notices = 500
		m := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error)
		go func() {
			done <- m.Listen(ctx, "a", nil, func(n driver.Notice) {
				time.Sleep(time.Second)
				got = append(got, n.Claim)
			})
		}()
		synctest.Wait()
		start := time.Now()
		want := []string{""} // NoticeReady
		for i := range notices {
			c := claim("k", "a", i)
			m.Notify(ctx, []driver.Notice{{Type: driver.NoticeYield, Session: "a", Key: "k", Claim: c.ID}})
			want = append(want, c.ID)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("Notify waited %v for a listener", took)
		}
		time.Sleep((notices + 2) * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !slices.Equal(got, want) {
			t.Errorf("Listen: %v, %d notices; want context.Canceled, %d in order", err, len(got), len(want))
		}
	})
}

// A Memory with Polling refuses to listen, and its commands return no notices.
func TestMemoryPolling(t *testing.T) {
	m, ctx := dsynctest.NewMemory(), t.Context()
	m.Polling = true
	if err := m.Listen(ctx, "a", nil, func(driver.Notice) { t.Error("heard a notice") }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Listen = %v, want errors.ErrUnsupported", err)
	}
	if err := m.Notify(ctx, []driver.Notice{{Type: driver.NoticeRevoke, Session: "a"}}); err != nil {
		t.Errorf("Notify = %v, want nil", err)
	}
}
