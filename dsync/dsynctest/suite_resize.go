package dsynctest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// resizeCases test Resize.
func resizeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Resize/OtherKindIsMismatch", test: testResizeKind},
		{name: "Notice/GrantByResize", test: testResizeNotice},
		{name: "Race/ResizeAndAcquire", test: testResizeRace},
	}
}

// resize sends a Resize for KindMutex, which must not fail.
func (e *env) resize(key string, from, limit int64) {
	e.Helper()
	before := e.seen
	notices, err := storecmd.Resize(e.ctx, e.store, key, driver.KindMutex, from, limit)
	if err != nil {
		e.Fatalf("Resize(%d, %d): %v", from, limit, err)
	}
	if g := e.tokens[key]; g != nil {
		g.shrunk = true
	}
	e.noticed(driver.Claim{Key: key}, before, notices)
}

// wantSize checks a key's kind and limit.
func (e *env) wantSize(key string, kind driver.Kind, limit int64) {
	e.Helper()
	if s := e.load(key); s.Kind != kind || s.Limit != limit {
		e.Fatalf("kind %q, limit %d; want %q, %d", s.Kind, s.Limit, kind, limit)
	}
}

func testResizeKind(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.weighted(key, session, 2, 2), e.weighted(key, session, 2, 2)
	e.hold(holder)
	e.queue(waiter)
	for range 2 { // first held and waited for, then only held
		var mismatch *driver.MismatchError
		_, err := storecmd.Resize(e.ctx, e.store, key, "other", 2, 3)
		want := driver.MismatchError{Key: key, Kind: holder.Kind, WantKind: "other", Limit: 2, WantLimit: 3}
		if !errors.As(err, &mismatch) || !errors.Is(err, driver.ErrMismatch) || *mismatch != want {
			e.Errorf("Resize as another kind: %v, want %+v", err, want)
		}
		e.wantSize(key, holder.Kind, 2)
		e.release(holder)
		holder = waiter
	}
	if _, err := storecmd.Resize(e.ctx, e.store, key, "other", 1, 3); err != nil { // nobody holds or waits
		e.Errorf("Resize of a free key as another kind: %v", err)
	}
	e.wantSize(key, "other", 3)
	c := e.weighted(key, session, 1, 1)
	c.Kind = "other"
	e.wantHolders(e.acquire(c), c)
	e.wantSize(key, "other", 3)
}

func testResizeNotice(e *env) {
	key, other := newID(), e.session()
	l := e.hears(key)
	if l == nil {
		return
	}
	first, second, third := e.weighted(key, l.session, 1, 1), e.yielding(key, l.session, 1, 1), e.claim(key, l.session)
	e.hold(e.claim(key, other))
	e.queue(first)
	e.queue(second)
	e.queue(third)
	e.resize(key, 1, 3)
	// Crowded is true, because the third claim still waits.
	e.wantNotices(granted(first, true), granted(second, true), change(key))
	e.resize(key, 3, 3)
	e.wantNotices()
	e.resize(key, 3, 4)
	e.wantNotices(granted(third, false), change(key))
	e.resize(key, 4, 2)
	e.wantNotices(change(key))
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
