package integration_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
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
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
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
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eval evaluates a JavaScript expression.
func eval[T any](t *testing.T, b *browser, js string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
