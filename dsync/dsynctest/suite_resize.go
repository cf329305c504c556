package dsynctest

import (
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// resizeCases test Resize.
func resizeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Race/ResizeAndAcquire", test: testResizeRace},
	}
}

// resize sends a Resize for KindMutex, which must not fail.
func (e *env) resize(key string, from, limit int64) {
	e.Helper()
	e.resizeTo(driver.Resize{Key: key, Kind: driver.KindMutex, From: from, Limit: limit})
}

// resizeTo sends a Resize, which must not fail.
func (e *env) resizeTo(z driver.Resize) {
	e.Helper()
	before := e.seen
	done, err := e.store.Edit(e.ctx, driver.Edit{Resize: &z})
	if err != nil {
		e.Fatalf("%+v: %v", z, err)
	}
	if g := e.tokens[z.Key]; g != nil {
		g.shrunk = true
	}
	e.noticed(driver.Claim{Key: z.Key}, before, done.Notices)
}

// testResizeRace changes the limit back and forth while claims with both limits arrive.
func testResizeRace(e *env) {
	const workers, rounds = 6, 8
	key, session := newID(), e.session()
	claims := make([][]driver.Claim, workers)
	for i := range claims {
		for range rounds {
			claims[i] = append(claims[i], e.weighted(key, session, 1, int64(2+i%2)))
		}
	}
	e.resize(key, 2, 3)
	var held atomic.Int32
	together(workers+1, func(i int) {
		if i == workers {
			for j := range rounds {
				from := int64(3 - j%2)
				if _, err := storecmd.Resize(e.ctx, e.store, key, driver.KindMutex, from, 5-from); err != nil {
					e.Errorf("Resize: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			return
		}
		for _, c := range claims[i] {
			s, _, err := storecmd.Acquire(e.ctx, e.store, c, false, nil, e.far)
			if err != nil {
				e.Errorf("Acquire with a limit that the key has or had: %v", err)
				return
			}
			if _, ok := s.Holder(c.ID); !ok {
				continue
			}
			if n := held.Add(1); n > 3 {
				e.Errorf("%d claims hold the key at a time, although its limit was never above 3", n)
			}
			time.Sleep(time.Millisecond)
			held.Add(-1)
			if found, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
}
