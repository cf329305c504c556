package integration_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A browser is a tab in a real browser.
type browser struct {
	ctx     context.Context
	console func() (chromedp.ConsoleMessage, error, bool)
}

// newBrowser starts Debian's headless chromium. If chromium is not installed, the test is
// skipped; in CI it fails.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no chromium on PATH; apt-get install chromium")
		}
		lab.Skip(t, nil, "no chromium on PATH")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	// The first call starts the browser, which ends with this call's context.
	noErr(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	next, stop := iter.Pull2(chromedp.Console(ctx))
	t.Cleanup(stop)
	b.console = next
	return b
}

// do runs the steps within two minutes.
func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	noErr(t, chromedp.Do(ctx, steps...))
}

// eval evaluates a JavaScript expression.
func eval[T any](t *testing.T, b *browser, js string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	noErr(t, err)
	return v
}

// eventually waits until a JavaScript expression is true.
func (b *browser) eventually(t *testing.T, js string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		// While the browser loads another page, evaluating fails.
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](js))
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("this did not become true: %s (%v)", js, err)
		}
	}
}

func (b *browser) press(t *testing.T, keys string) {
	t.Helper()
	b.do(t, chromedp.KeyEvent(keys))
}

// prefers sets the preferred color scheme, "light" or "dark".
func (b *browser) prefers(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	noErr(t, err)
}

// noComplaints fails the test if the browser has written anything to its console since the last
// call.
func (b *browser) noComplaints(t *testing.T) {
	t.Helper()
	const end = "so far"
	b.do(t, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("console.info(%q)", end)))
	for {
		m, err, ok := b.console()
		switch {
		case err != nil || !ok:
			t.Fatalf("can't read the browser's console: %v", err)
		case m.Text == end:
			return
		default:
			t.Errorf("the browser's console: %s (%s)", m, m.URL)
		}
	}
}

// servePage serves the page of s, mounted as users mount it, and returns the page's address.
func servePage(t *testing.T, s *dsync.Session, opt *dsynchttp.Options) string {
	t.Helper()
	page := dsynchttp.New(s, opt)
	mux := http.NewServeMux()
	mux.Handle("/debug/leasehold/", http.StripPrefix("/debug/leasehold", page))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		page.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/debug/leasehold/"
}

// A scene is a small fleet that shares an in-memory store. Its processes do typical work, which
// the page shows.
type scene struct {
	store *dsynctest.Memory
	own   *dsync.Session // the process that serves the page
	fleet map[string]*dsync.Session
	cut   *dsynctest.Faulty // the connection of worker-2 to the store
}

// A process is the store as another process would use it: sessions are registered with that process's ID.
type process struct {
	driver.Store
	pid int
}

func (p process) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	m.PID, m.Settings.Version = p.pid, "v0.1.0" // needed because a test binary has no version
	return p.Store.Register(ctx, m)
}

func newScene(t *testing.T, ttl time.Duration) *scene {
	t.Helper()
	sc := &scene{store: dsynctest.NewMemory(), fleet: make(map[string]*dsync.Session)}
	open := func(store driver.Store, name, host, app string) *dsync.Session {
		s, err := dsync.New(store, &dsync.Options{TTL: ttl, Name: name, Host: host, App: app, AlwaysListen: true})
		noErr(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			s.Close(ctx)
		})
		sc.fleet[name] = s
		return s
	}
	sc.own = open(process{sc.store, os.Getpid()}, "billing-7c9f-x2k4d", "node-03", "billing 2.14.1")
	open(process{sc.store, 4711}, "billing-7c9f-m8qpz", "node-11", "billing 2.14.1")
	open(process{sc.store, 318}, "worker-0", "node-03", "worker 1.9.0")
	open(process{sc.store, 322}, "worker-1", "node-07", "worker 1.9.0")
	sc.cut = dsynctest.NewFaulty(process{sc.store, 97}, nil)
	t.Cleanup(sc.cut.Close)
	open(sc.cut, "worker-2", "node-12", "worker 1.9.0")
	return sc
}

// play plays the scene for d. Its steps are timed in hundredths of d. At the end, locks are held
// and have waiters.
func (sc *scene) play(t *testing.T, d time.Duration) {
	t.Helper()
	tick := d / 100
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	name := func(n string) *dsync.Session { return sc.fleet[n] }

	// turns alternately holds the key for some ticks and pauses for some ticks.
	turns := func(s *dsync.Session, key string, start, hold, pause time.Duration) {
		wg.Go(func() {
			mu := s.Mutex(key)
			for wait(ctx, start*tick) && mu.LockContext(ctx) == nil {
				wait(ctx, hold*tick)
				mu.Unlock()
				start = pause
			}
		})
	}
	turns(sc.own, "invoices/export", 0, 9, 6)
	turns(name("billing-7c9f-m8qpz"), "invoices/export", 4, 14, 9)
	turns(name("worker-1"), "invoices/export", 9, 6, 20)
	turns(name("worker-0"), "reports/daily", 12, 7, 25)
	turns(name("worker-1"), "reports/daily", 30, 12, 30)
	turns(sc.own, "cache/warm-up", 66, 5, 9)

	// A semaphore of size four.
	for i, s := range []*dsync.Session{name("worker-0"), name("worker-1"), sc.own, name("worker-0"), name("billing-7c9f-m8qpz")} {
		wg.Go(func() {
			sem := s.Semaphore("smtp/connections", 4)
			for wait(ctx, time.Duration(5+9*i)*tick) && sem.Acquire(ctx, int64(1+i%2)) == nil {
				wait(ctx, time.Duration(11+7*i)*tick)
				sem.Release(int64(1 + i%2))
			}
		})
	}

	// A leader is cut off below, and another process leads.
	elect := func(s *dsync.Session, start time.Duration) {
		wg.Go(func() {
			if !wait(ctx, start*tick) {
				return
			}
			for {
				h, err := engine.Of(s).Hold(ctx, engine.Whole("scheduler", driver.KindElection))
				if err != nil {
					return
				}
				select {
				case <-h.Lost():
				case <-ctx.Done():
				}
				h.Release(ctx)
			}
		})
	}
	elect(name("worker-2"), 6)
	elect(name("worker-0"), 8)
	elect(name("worker-1"), 10)

	// A migration that has finished, and a key that is held for a long time.
	wg.Go(func() {
		sc.own.Once("migrations/0042").Do(ctx, func(context.Context) error { return nil })
	})
	wg.Go(func() {
		mu := sc.own.Mutex("ledger/close-of-month")
		if wait(ctx, 20*tick) && mu.LockContext(ctx) == nil {
			<-ctx.Done()
			mu.Unlock()
		}
	})
	for _, n := range []string{"billing-7c9f-m8qpz", "worker-0"} {
		wg.Go(func() {
			if wait(ctx, 40*tick) {
				name(n).Mutex("ledger/close-of-month").LockContext(ctx)
			}
		})
	}
	// A holder is cut off, so another process gets the key when the holder's session has lapsed.
	turns(name("worker-2"), "thumbnails/rebuild", 10, 1000, 1)
	turns(sc.own, "thumbnails/rebuild", 30, 30, 1000)
	turns(name("worker-1"), "thumbnails/rebuild", 32, 1000, 1)
	wait(ctx, 38*tick)
	sc.cut.Cut()
	wait(ctx, 62*tick)
}

// wait waits for d. It reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
