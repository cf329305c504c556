package dsync

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// However many things were done at a time, few goroutines wait for more, which do
// them, and none is left in the end.
func TestWorkersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 10 // goroutines of the process that come and go
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorkers(ctx)
		for range 3 {
			begin, done := make(chan struct{}), make(chan int, 100)
			for i := range 100 {
				w.do(func() { <-begin; done <- i })
			}
			synctest.Wait()
			close(begin)
			synctest.Wait()
			if len(done) != 100 {
				t.Errorf("%d of 100 things were done", len(done))
			}
			if n := runtime.NumGoroutine() - before; n > maxIdle+others {
				t.Errorf("%d goroutines wait, want at most %d", n, maxIdle)
			}
		}
		began := runtime.NumGoroutine()
		for range 100 {
			w.do(func() {})
			if n := runtime.NumGoroutine(); n > began+others {
				t.Fatalf("there are %d goroutines, and were %d: those that waited were not used", n, began)
			}
			synctest.Wait()
		}
		cancel()
		w.wg.Wait()
	})
}
