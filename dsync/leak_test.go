package dsync_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// heap returns the number of heap bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A session forgets a lease that has lapsed, even if the session itself goes on.
func TestEndedLeasesAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 4 * time.Second
		s := newSession(t, dsynctest.NewMemory(), nil)
		lapse := func(n int) {
			for range n {
				l, err := s.Mutex("k").Lease(background, d)
				noErr(t, err)
				<-l.Lost()
				time.Sleep(d)
			}
		}
		lapse(10)
		before := heap()
		const leases = 2000
		lapse(leases)
		if n := heap() - before; n > leases*200 {
			t.Errorf("%d ended leases have left %d bytes in memory", leases, n)
		}
	})
}

// What a session knows about other sessions is forgotten when it has not been needed for a while.
func TestSessionsOfOthersAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &crowdStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		lock(t, s.Mutex("mine")) // keeps the session sending heartbeats
		try := func(n int) {
			for range n {
				wantErr(t, "TryHold", errOf(s.Mutex("k").TryHold(background)), dsync.ErrHeld)
				time.Sleep(ttl)
			}
		}
		try(30)
		before := heap()
		const sessions = 1000
		try(sessions)
		if n := heap() - before; n > sessions*metaSize/4 {
			t.Errorf("%d sessions, each with %d bytes of Meta, have left %d bytes", sessions, metaSize, n)
		}
	})
}

const metaSize = 4000

// In a crowdStore, each request for the key "k" finds the key held by a different session.
type crowdStore struct {
	*dsynctest.Memory
	n int
}

func (s *crowdStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire == nil || e.Key() != "k" {
		return s.Memory.Edit(ctx, e)
	}
	c := e.Acquire.Claim
	s.n++
	id, now := fmt.Sprintf("s%d", s.n), time.Now()
	return driver.Edited{State: driver.State{
		Key: c.Key, Now: now, Kind: c.Kind, Limit: c.Limit, Token: 1,
		Holders: []driver.Holder{{Claim: id + ".1", Session: id, Weight: 1, Token: 1, Since: now}},
	}}, nil
}

func (s *crowdStore) Sessions(ctx context.Context, q driver.SessionQuery) (m []driver.Member, now time.Time, err error) {
	now = time.Now()
	for _, id := range q.IDs {
		m = append(m, driver.Member{ID: id, TTL: ttl, LastHeartbeat: now, Meta: map[string]string{"m": strings.Repeat("m", metaSize)}})
	}
	return m, now, nil
}

// A context made from a hold is freed when its parent is cancelled, not only when the hold ends. A leader may lead for
// months and make a context for every piece of work.
func TestCancelledContextsAreFreed(t *testing.T) {
	type key struct{}
	type value [1 << 10]byte
	bubble(t, func(t *testing.T) {
		h := take(t, newSession(t, dsynctest.NewMemory(), nil).Mutex("k").Hold)
		use := func() weak.Pointer[value] {
			v := new(value)
			parent, cancel := context.WithCancel(context.WithValue(background, key{}, v))
			defer cancel()
			if c := h.Context(parent); c.Err() != nil {
				t.Fatal(c.Err())
			}
			return weak.Make(v)
		}
		kept := use()
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		if kept.Value() != nil {
			t.Error("the hold keeps the context of cancelled work in memory")
		}
		if h.Token() == 0 {
			t.Error("the hold has ended")
		}
		h.Release(background)
	})
}

// Here each request for a claim also releases the previous claim. The session forgets the released claims even if the
// requests follow each other without a pause.
func TestReplacedClaimsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const warm, holds = 2000, 4000
		store := dsynctest.NewMemory()
		opt := &dsync.Options{}
		opt.HandOffTime = -1
		opt.TTL = time.Second // a past claim is remembered for up to two heartbeats
		s := newSession(t, slow(t, store), opt)
		var before, after int64
		n := 0
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for mu := s.Mutex("k"); ; {
					mu.Lock()
					switch n++; n {
					case warm:
						before = heap()
					case warm + holds:
						after = heap()
					}
					over := n >= warm+holds
					mu.Unlock()
					if over {
						return
					}
				}
			})
		}
		wg.Wait()
		if n := after - before; n > holds*200 {
			t.Errorf("%d replaced claims have left %d bytes in memory", holds, n)
		}
		if n := store.Counts().Commands[dsynctest.MethodRelease]; n > holds/10 {
			t.Errorf("%d separate Releases, want most claims to be released by the request for the next one", n)
		}
	})
}
