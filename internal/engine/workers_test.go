package engine

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// Only a few idle goroutines are kept for reuse, no matter how many functions ran at the same time. When the context
// ends, the idle goroutines end as well.
func TestWorkersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 10 // unrelated goroutines that come and go
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
				t.Errorf("%d of 100 functions ran", len(done))
			}
			n := runtime.NumGoroutine() - before
			for i := 0; n > maxIdle+others && i < 5_000_000; i++ {
				runtime.Gosched() // goroutines that have just ended may still be counted
				n = runtime.NumGoroutine() - before
			}
			if n > maxIdle+others {
				t.Errorf("%d goroutines are idle, want at most %d", n, maxIdle)
			}
		}
		used := make(map[string]bool)
		for range 100 {
			w.do(func() { used[goroutine()] = true })
			synctest.Wait()
		}
		if len(used) > maxIdle {
			t.Errorf("100 functions ran one after another on %d goroutines, want at most the %d idle ones", len(used), maxIdle)
		}
		cancel()
		w.wg.Wait()
	})
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	stack := make([]byte, 64)
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
	return string(name)
}
