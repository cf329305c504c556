package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A session can observe any number of keys. Its record lists as many as fit. If some keys don't fit into the record,
// one line of the log says so.
func TestObserveManyKeys(t *testing.T) {
	testkit.Large(t) // with 612 goroutines in a bubble, the race detector of Go 1.26 sometimes aborts: tsan_rtl.cpp:346
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &observing{Memory: dsynctest.NewMemory()}
		s := engine.Of(newSession(t, store, &dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		const n = driver.MaxObserved/512 + 100
		seen := make([]int, n)
		key := func(i int) string { return fmt.Sprintf("%0512d", i) }
		var stop context.CancelFunc // ends the observation of the last key
		for i := range n {
			ctx, cancel := context.WithCancel(background)
			s.Observe(ctx, key(i), func(driver.State, error) { seen[i]++ }, func() {})
			stop = cancel
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if size := len(strings.Join(store.list, "")); len(store.list) != driver.MaxObserved/512 || size > driver.MaxObserved {
			t.Errorf("the list has %d keys of %d bytes, want as many as fit into %d", len(store.list), size, driver.MaxObserved)
		}
		for _, i := range []int{0, n - 1} {
			before := seen[i]
			mu := newSession(t, store, nil).Mutex(key(i))
			lock(t, mu)
			time.Sleep(time.Second)
			synctest.Wait()
			if seen[i] == before {
				t.Errorf("a change of key %d of %d was not observed", i+1, n)
			}
			mu.Unlock()
			all, err := s.Observers(background, key(i))
			noErr(t, err)
			if listed, want := len(all) == 1, i == 0; listed != want {
				t.Errorf("the session is listed as an observer of key %d of %d: %t, want %t", i+1, n, listed, want)
			}
		}
		stop()
		time.Sleep(time.Second)
		synctest.Wait() // for the log
		if got := strings.Count(log.String(), "more keys than its record has room for"); got != 1 {
			t.Errorf("warned %d times, want once:\n%s", got, &log)
		}
	})
}

// An observing store remembers the last list of keys that it got from Observe.
type observing struct {
	*dsynctest.Memory
	list []string
}

func (o *observing) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	o.list = keys
	return o.Memory.Observe(ctx, session, seq, keys)
}
