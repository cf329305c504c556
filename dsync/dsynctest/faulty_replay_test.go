package dsynctest_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

func TestFaultyReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodUnregister, 0, dsynctest.Fault{LoseRequest: true}))
		f.Register(t.Context(), driver.Member{ID: "before", TTL: time.Minute}) // not recorded yet
		f.Record()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		meta, expired, value := map[string]string{"zone": "1"}, []string{"dead"}, []byte("sent")
		f.Register(ctx, driver.Member{ID: "a", TTL: time.Minute, Meta: meta})
		storecmd.Acquire(ctx, f, claim("k", "a", 1), true, expired, soon())
		f.Load(ctx, "k", 1000)
		storecmd.Publish(ctx, f, claim("k", "a", 1), 1, value)
		storecmd.Unregister(ctx, f, "a")          // this request is lost
		meta["zone"], expired[0] = "changed", "a" // must not change the recorded requests
		value[0] = 'b'
		<-ctx.Done() // the recorded requests must not end with ctx
		if s, _ := m.Load(t.Context(), "k", 1000); len(s.Holders) != 1 {
			t.Fatalf("holders %+v, want one", s.Holders)
		}

		before := m.Counts()
		if err := f.Replay(t.Context()); err != nil {
			t.Fatalf("Replay: %v", err)
		}
		got := m.Counts().Since(before)
		if got.Total() != 4 || got.Commands[dsynctest.MethodUnregister] != 1 || got.Commands[dsynctest.MethodPublish] != 1 {
			t.Errorf("replayed %v, want Register, Acquire, Publish, Unregister", got.Commands)
		}
		found, _, _ := storecmd.Members(t.Context(), m, "a")
		if len(found) != 1 || !found[0].Expired || found[0].Meta["zone"] != "1" {
			t.Errorf("after Replay: %+v; want it expired by the lost request, with the Meta that was sent", found)
		}
		if s, _ := m.Load(t.Context(), "k", 1000); len(s.Holders) != 1 {
			t.Errorf("after Replay: holders %+v; want one: the Acquire did not name session a as expired when it was sent", s.Holders)
		} else if string(s.Value) != "sent" {
			t.Errorf("after Replay: value %q, want the one that was sent", s.Value)
		}
		if err := f.Replay(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Replay with an ended ctx = %v, want its error", err)
		}
	})
}

// Replay repeats each write with the arguments of the original call, even if the caller has changed them since.
func TestFaultyReplaysEveryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		f := dsynctest.NewFaulty(m, nil)
		f.Record()
		given, result, keys := []driver.Revocation{{Key: "k", Claim: "a.1"}}, []byte("sent"), []string{"sent"}
		c := claim("k", "a", 1)
		f.Register(ctx, driver.Member{ID: "a", TTL: time.Minute})
		f.Revoke(ctx, "a", given[0])
		f.Heartbeat(ctx, "a", given)
		f.Observe(ctx, "b", 1, keys) // session b is not registered yet
		storecmd.Resize(ctx, f, "sized", c.Kind, 1, 2)
		storecmd.Release(ctx, f, c, driver.Release{Seal: 1, Result: result}) // the claim is not acquired yet
		given[0].Claim, result[0], keys[0] = "changed", 'x', "k"             // must not change the recorded requests
		f.Keys(ctx, driver.KeyQuery{Limit: 10})
		storecmd.Observers(ctx, f, "k", "", 10)
		storecmd.Queue(ctx, f, "k")
		m.Register(ctx, driver.Member{ID: "b", TTL: time.Minute})
		m.Revoke(ctx, "a", driver.Revocation{Key: "k", Claim: "changed"})
		storecmd.Acquire(ctx, m, c, true, nil, soon())

		before := m.Counts()
		if err := f.Replay(ctx); err != nil {
			t.Fatalf("Replay: %v", err)
		}
		want := map[dsynctest.Method]int{
			dsynctest.MethodRegister: 1, dsynctest.MethodRevoke: 1, dsynctest.MethodHeartbeat: 1,
			dsynctest.MethodObserve: 1, dsynctest.MethodResize: 1, dsynctest.MethodRelease: 1,
		}
		if got := m.Counts().Since(before).Commands; !maps.Equal(got, want) {
			t.Errorf("replayed %v, want %v", got, want)
		}
		p, err := f.Heartbeat(ctx, "a", nil)
		if err != nil || len(p.Revoked) != 1 || p.Revoked[0].Claim != "changed" {
			t.Errorf("after Replay: revoked %+v, %v; want the revocation that the Heartbeat did not name when it was sent", p.Revoked, err)
		}
		if found, err := storecmd.Observers(ctx, f, "sent", "", 10); err != nil || len(found) != 1 || found[0].ID != "b" {
			t.Errorf("after Replay: observers %+v, %v; want b as the observer of the key that was sent", found, err)
		}
		states, err := f.Keys(ctx, driver.KeyQuery{Limit: 10})
		if err != nil || len(states) != 2 || string(states[0].Value) != "sent" || states[0].Sealed != 1 || states[1].Limit != 2 {
			t.Errorf("after Replay: %+v, %v; want the first sealed as it was sent, the second with limit 2", states, err)
		}
	})
}

// Replay leaves out a request that has not reached the store yet, because the copy would arrive before the
// original.
func TestFaultyReplaysNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := dsynctest.NewMemory(), t.Context()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodUnregister, 0, dsynctest.Fault{Delay: time.Second}))
		defer f.Close()
		f.Record()
		f.Register(ctx, driver.Member{ID: "a", TTL: time.Minute})
		go storecmd.Unregister(ctx, f, "a")
		synctest.Wait()
		for _, want := range []int{0, 1} {
			before := m.Counts()
			if err := f.Replay(ctx); err != nil {
				t.Fatalf("Replay: %v", err)
			}
			if got := m.Counts().Since(before).Commands; got[dsynctest.MethodRegister] != 1 || got[dsynctest.MethodUnregister] != want {
				t.Errorf("replayed %v, want one Register and %d Unregister", got, want)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
