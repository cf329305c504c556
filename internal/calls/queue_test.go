package calls_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/calls"
)

// Functions are called in order, even if one of them sleeps, panics or calls runtime.Goexit.
func TestQueueGoesOn(t *testing.T) {
	for name, f := range map[string]func(){
		"returns": func() {},
		"panics":  func() { panic("a hook panics") },
		"exits":   func() { runtime.Goexit() },
		"sleeps":  func() { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q calls.Queue
				var got []int
				for i := range 10 {
					q.Add(func() { got = append(got, i) })
					q.Add(f)
				}
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
					t.Errorf("called %v, want %v", got, want)
				}
			})
		})
	}
}

// Of several queued functions with the same key, only the last is called, unless Add has queued a function between
// them. Functions added by Add are always called.
func TestQueueKeepsTheLatestOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q calls.Queue
		var got []string
		note := func(format string, args ...any) func() {
			return func() { got = append(got, fmt.Sprintf(format, args...)) }
		}
		q.Add(func() { time.Sleep(time.Second) })
		synctest.Wait()
		for i := range 3 {
			for k := range 5 {
				q.AddLatest("a", note("a %d.%d", i, k))
				q.AddLatest("b", note("b %d.%d", i, k))
			}
			q.Add(note("each %d", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"a 0.4", "b 0.4", "each 0", "a 1.4", "b 1.4", "each 1", "a 2.4", "b 2.4", "each 2"}
		if !slices.Equal(got, want) {
			t.Errorf("called %q, want %q", got, want)
		}
	})
}
