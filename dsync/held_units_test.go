package dsync_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Short-lived readers that share a long hold leave nothing behind in memory, even if they use Lost and Context.
func TestReadersLeaveNothingBehind(t *testing.T) {
	for _, test := range []struct {
		name string
		last func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex // returns the RWMutex that the short-lived readers use
	}{
		{"of one RWMutex", func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex { return first }},
		{"of another RWMutex", func(first *dsync.RWMutex, s *dsync.Session) *dsync.RWMutex { return s.RWMutex("k") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSession(t, dsynctest.NewMemory(), nil)
				first := s.RWMutex("k")
				firstHold := take(t, first.RHold)
				token := firstHold.Token()
				read := func() {
					h := take(t, test.last(first, s).RHold)
					if h.Token() != token || isClosed(h.Lost()) {
						t.Error("the readers do not share a claim, or a reader's hold is lost")
					}
					ctx := h.Context(background)
					if h.Release(background); ctx.Err() == nil {
						t.Error("the context of a reader outlives its hold")
					}
				}
				const readers = 10_000
				read()
				before := objects()
				for range readers {
					read()
				}
				if n := objects() - before; n > readers/2 {
					t.Errorf("%d former readers left %d objects in memory", readers, n)
				}
				firstHold.Release(background)
			})
		})
	}
}

// objects returns the number of live heap objects.
func objects() int {
	synctest.Wait() // lets goroutines that are about to return do so
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapObjects)
}
