package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
)

// The page shows a thousand keys. On an idle machine this takes less than a second. The test logs
// the time, but asserts only that the keys are shown.
func TestPageOfAThousandKeys(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, 30*time.Second)
	for i := range 1000 {
		s := sc.own
		if i%2 == 0 {
			s = sc.fleet["worker-0"]
		}
		noErr(t, s.Mutex(fmt.Sprintf("customers/%04d/invoices", i)).LockContext(t.Context()))
	}
	url := servePage(t, sc.own, nil)
	b.do(t, chromedp.Navigate(url)) // warm up, because the browser is slow right after its start
	began := time.Now()
	b.do(t, chromedp.Navigate(url+"?n=1000"))
	loaded := time.Since(began)
	rows := eval[int](t, b, `document.querySelectorAll('.keys tbody tr').length`)
	if rows != 1000 {
		t.Errorf("the page has %d rows, want 1000", rows)
	}
	if drawn := eval[int](t, b, `document.querySelectorAll('.keys svg.line rect').length`); drawn != 1000 {
		t.Errorf("%d holds are drawn, want 1000", drawn)
	}
	painted := eval[float64](t, b, `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1`)
	t.Logf("1000 keys: loaded after %v, first painted after %.0f ms", loaded.Round(time.Millisecond), painted)
	b.eventually(t, `document.getElementById('live').textContent === 'live'`)
	b.noComplaints(t)
}

// Changes appear without a reload, and do not disturb the focus or the text that the user is
// typing.
func TestPageIsKeptUpToDate(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, 30*time.Second)
	url := servePage(t, sc.own, &dsynchttp.Options{Refresh: 100 * time.Millisecond})
	b.do(t, chromedp.Navigate(url), chromedp.Focus(`input[name=prefix]`), chromedp.KeyEvent("inv"))
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector('#keys-h').remembered = true`))
	const key = "invoices/<b>export</b>"
	mu := sc.fleet["worker-0"].Mutex(key)
	noErr(t, mu.LockContext(t.Context()))
	b.eventually(t, `document.querySelector('.keys .owner')?.textContent === 'worker-0'`)
	if got := eval[string](t, b, `document.activeElement.name + '=' + document.activeElement.value`); got != "prefix=inv" {
		t.Errorf("the focus is on %q, want prefix=inv", got)
	}
	if !eval[bool](t, b, `document.querySelector('#keys-h').remembered === true`) {
		t.Error("an unchanged element was replaced")
	}
	if got := eval[string](t, b, `document.querySelector('.keys tbody .k').textContent`); got != key {
		t.Errorf("the key is shown as %q, want %q", got, key)
	}
	mu.Unlock()
	b.eventually(t, `document.querySelector('.keys .free') !== null`)
	b.noComplaints(t)

	// When the user submits the form, the page shows the keys with the prefix.
	b.press(t, kb.Enter)
	b.eventually(t, `location.search.includes('prefix=inv') && document.querySelectorAll('.keys tbody tr').length === 1`)
	b.noComplaints(t)
}

// After the first event, the browser advances ages and timelines by itself between
// events.
func TestPageGoesOnByItself(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, time.Hour) // heartbeats so rare that they cause no events
	url := servePage(t, sc.own, &dsynchttp.Options{Refresh: 100 * time.Millisecond})
	noErr(t, sc.fleet["worker-0"].Mutex("k").LockContext(t.Context()))
	b.do(t, chromedp.Navigate(url+"?window=1m"))
	b.eventually(t, `document.getElementById('live').textContent === 'live'`)
	const left = `document.querySelector('.keys svg.line rect').getBoundingClientRect().left`
	const age = `parseFloat(document.querySelector('.keys time').textContent)`
	b.do(t, chromedp.Evaluate[chromedp.Void](`window.before = {left: `+left+`, age: `+age+`}`))
	// The timeline covers a minute. In 3 s the hold moves by a twentieth of the timeline's width;
	// require a thirtieth.
	b.eventually(t, age+` >= before.age + 3 && `+left+` <= before.left - document.querySelector('.keys svg.line').clientWidth / 30`)
	if right := eval[bool](t, b, `document.querySelector('.keys svg.line rect').getBoundingClientRect().right >= document.querySelector('.keys svg.line').getBoundingClientRect().right`); !right {
		t.Error("a current hold is not drawn up to the present")
	}
	b.noComplaints(t)
}

func TestPageWithoutScript(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, 30*time.Second)
	url := servePage(t, sc.own, nil)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	noErr(t, err)
	b.do(t, chromedp.Navigate(url))
	mu := sc.fleet["worker-0"].Mutex("invoices/export")
	noErr(t, mu.LockContext(t.Context()))
	// The page reloads itself.
	b.do(t, chromedp.WaitVisible(`.keys .owner`))
	text, err := chromedp.Run(b.ctx, chromedp.Text(`.keys .owner`))
	if err != nil || text != "worker-0" {
		t.Errorf("the holder is %q, %v", text, err)
	}
	mu.Unlock()
}

// The keyboard reaches every action, in the order on the page, and the focus is visible.
func TestPageByKeyboard(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, 30*time.Second)
	allowed := func(r *http.Request) error {
		if r.Header.Get("Sec-Fetch-Site") != "same-origin" {
			return errors.New("not from this page")
		}
		return nil
	}
	url := servePage(t, sc.own, &dsynchttp.Options{Authorize: allowed})
	mu := sc.fleet["worker-0"].Mutex("invoices/export")
	noErr(t, mu.LockContext(t.Context()))
	tab := func() string {
		b.press(t, kb.Tab)
		return eval[string](t, b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			const seen = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && r.width > 0 && r.left >= 0 && r.right <= innerWidth;
			return (e.name || e.innerText || e.type).trim() + (seen ? '' : ' (not seen)');
		})()`)
	}
	walk := func(path string, want ...string) {
		t.Helper()
		b.do(t, chromedp.Navigate(url+path))
		b.eventually(t, `document.getElementById('live').textContent === 'live'`)
		for _, w := range want {
			if got := tab(); got != w {
				t.Errorf("the focus is on %q, want %q", got, w)
			}
		}
	}
	walk("", "Skip to content", "leasehold", "JSON", "prefix", "contains", "sort", "Show", "1 min", "10 min", "1 h", "invoices/export")
	b.press(t, kb.Enter)
	b.eventually(t, `document.querySelector('h1').textContent === 'invoices/export'`)
	walk("key?key=invoices/export", "Skip to content", "leasehold", "JSON", "All keys", "Break this lock")
	b.press(t, kb.Enter)
	b.eventually(t, `document.querySelector('.break button').checkVisibility()`)
	tab()
	b.press(t, " ")
	if got := tab(); got != "Break" {
		t.Errorf("the focus is on %q, want Break", got)
	}
	go func() {
		<-mu.Lost()
		mu.Unlock()
	}()
	b.press(t, kb.Enter)
	b.eventually(t, `document.body.innerText.includes('Nobody holds it.')`)
	b.noComplaints(t)
}

// contrast returns the number of texts, and then each text with too little contrast, together with its contrast ratio.
// WCAG's minimum is a ratio of 4.5 to 1.
const contrast = `(() => {
	const parse = c => { const v = c.match(/[\d.]+/g).map(Number); return v.length === 3 ? [...v, 1] : v; };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255]; };
	const bad = [];
	let n = 0;
	for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || e.closest('svg') || !e.getClientRects().length) continue;
		n++;
		const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.push(walk.currentNode.data.trim() + ' ' + ratio.toFixed(2));
	}
	return [String(n), ...bad];
})()`

// The page is readable on a phone and on a wide screen, in light and dark colors, whatever it
// shows.
func TestPageIsReadable(t *testing.T) {
	b := newBrowser(t)
	sc := newScene(t, 2*time.Second)
	long := strings.Repeat("a-key-without-any-space/", 21)
	h := lock(t, sc.own.Mutex(long))
	url := servePage(t, sc.own, &dsynchttp.Options{Authorize: func(*http.Request) error { return nil }})
	b.do(t, chromedp.Navigate(url))
	sc.play(t, 8*time.Second)
	// Make a holder ignore the loss of its hold, so that the page shows the alert.
	noErr(t, admin.New(sc.fleet["worker-1"]).Break(t.Context(), long))
	for _, path := range []string{"", "?window=1m", "?prefix=nothing", "?sort=waiters&n=2&mine=1", "key?key=invoices/export", "key?key=smtp/connections", "key?key=nothing", "key?key=" + long} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{390, 1200} {
				b.prefers(t, scheme)
				b.do(t, chromedp.EmulateViewport(width, 900), chromedp.Navigate(url+path))
				if got := eval[int64](t, b, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%.40q is %d pixels wide, want at most %d", path, got, width)
				}
				if got := eval[bool](t, b, `matchMedia('(prefers-color-scheme: dark)').matches`); got != (scheme == "dark") {
					t.Errorf("the browser does not prefer %s", scheme)
				}
				found := eval[[]string](t, b, contrast)
				if len(found) != 1 {
					t.Errorf("%q in %s at %d has too little contrast: %q", path, scheme, width, found[1:])
				}
				if found[0] == "0" {
					t.Errorf("%q has no text", path)
				}
			}
		}
	}
	if path := "key?key=nothing"; !strings.Contains(eval[string](t, b, `document.body.innerText`), "Not healthy") {
		t.Errorf("%q does not mention the loss", path)
	}
	h.Release(t.Context())
}

// TestPagePicture makes the README's screenshot, which takes a minute:
//
//	LEASEHOLD_PAGE_PNG=../docs/page.png go test -run TestPagePicture .
//
// Run it again in this directory when the page's looks have changed.
func TestPagePicture(t *testing.T) {
	file := os.Getenv("LEASEHOLD_PAGE_PNG")
	if file == "" {
		t.Skip("LEASEHOLD_PAGE_PNG, the file for the picture, is not set")
	}
	b := newBrowser(t)
	sc := newScene(t, 6*time.Second)
	url := servePage(t, sc.own, &dsynchttp.Options{Refresh: time.Second})
	b.do(t, chromedp.EmulateViewport(1060, 900), chromedp.Navigate(url+"?window=1m"))
	sc.play(t, 58*time.Second)
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	noErr(t, err)
	noErr(t, os.WriteFile(file, png, 0o644))
	b.noComplaints(t)
}
