package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Uses returns the same as Local, in parts, in any order.
func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := (*engine.Session)(newSession(t, store, nil)), (*engine.Session)(newSession(t, store, nil))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := range 50 { // the last key is held longest
			key := fmt.Sprintf("a/%02d", 49-i)
			if _, err := s.Acquire(ctx, engine.Whole(key, driver.KindMutex)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if _, err := other.Acquire(ctx, engine.Whole("b", driver.KindMutex)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go s.Acquire(ctx, engine.Whole("b", driver.KindMutex))
			go s.Acquire(ctx, engine.Whole("a/07", driver.KindMutex))
			synctest.Wait()
			time.Sleep(time.Second)
		}
		var local []string // in key order
		l := s.Local()
		for _, h := range l.Holds {
			local = append(local, name(engine.Use{Hold: &h}))
		}
		for _, w := range l.Waits {
			local = append(local, name(engine.Use{Wait: &w}))
		}
		slices.Sort(local)
		if len(local) != 56 {
			t.Fatalf("Local has %q, want 50 holds and 6 waits", local)
		}
		for order, want := range map[engine.UsesOrder][2]string{
			engine.ByKey:        {"a/00 held", "b waits 2"},
			engine.OldestFirst:  {"a/49 held", "b waits 2"},
			engine.WaitingFirst: {"a/07 waits 0", "a/00 held"},
		} {
			for _, n := range []int{1, 3, 56, 100} {
				var all []string
				for from := 0; from < 56; from += n {
					uses, total := s.Uses(engine.UsesQuery{Order: order, From: from, N: n})
					if len(uses) != min(n, 56-from) || total != 56 {
						t.Fatalf("%d from %d on: %d of %d, want 56 in all", n, from, len(uses), total)
					}
					for _, u := range uses {
						all = append(all, name(u))
					}
				}
				if ends := [2]string{all[0], all[55]}; ends != want {
					t.Errorf("order %d: %q are the first and the last, want %q", order, ends, want)
				}
				if slices.Sort(all); !slices.Equal(all, local) {
					t.Errorf("order %d, %d at a time: %q, want %q", order, n, all, local)
				}
			}
		}
		uses, total := s.Uses(engine.UsesQuery{Match: func(key string) bool { return strings.HasSuffix(key, "7") }, N: 3})
		if got := fmt.Sprint(name(uses[0]), name(uses[1]), name(uses[2])); got != "a/07 helda/07 waits 0a/07 waits 1" || total != 8 {
			t.Errorf("%q of %d match, want a/07 and its waiter of 8", got, total)
		}
		if uses, total := s.Uses(engine.UsesQuery{From: 100, N: 10}); len(uses) != 0 || total != 56 {
			t.Errorf("%d of %d beyond the end, want 0 of 56", len(uses), total)
		}
	})
}

func name(u engine.Use) string {
	if u.Wait != nil {
		return fmt.Sprint(u.Wait.Key, " waits ", u.Wait.Ahead)
	}
	return u.Hold.Key + " held"
}
