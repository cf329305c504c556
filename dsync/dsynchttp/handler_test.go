package dsynchttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

func TestPageShowsWhatIsHeldAndWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Name: "me"})
		other := newSession(t, store, &dsync.Options{Name: "other"})
		third := newSession(t, store, &dsync.Options{Name: "third"})
		h := newPage(t, s, nil)
		mine, theirs := s.Mutex("mine"), other.Mutex("theirs")
		lock(t, mine)
		lock(t, theirs)
		ctx, cancel := context.WithCancel(background)
		go third.Mutex("theirs").LockContext(ctx)
		synctest.Wait()
		go s.Mutex("theirs").LockContext(ctx)
		time.Sleep(3 * time.Second)
		synctest.Wait()

		l := getJSON(t, h, "/")
		if l.Session.ID != s.ID() || l.Session.Lease == 0 || l.Session.Left <= 0 || l.Session.Left > l.Session.Lease {
			t.Errorf("the session is %+v", l.Session)
		}
		if len(l.Mine) != 2 || l.Mine[0].Key != "mine" || l.Mine[0].State != "holds" || l.Mine[0].For != 3000 || l.Mine[0].Token != mine.Token() ||
			l.Mine[1].Key != "theirs" || l.Mine[1].State != "waits" || l.Mine[1].Position != 2 {
			t.Errorf("this process uses %+v", l.Mine)
		}
		if len(l.Keys) != 2 || !l.Keys[0].Holders[0].Mine || l.Keys[1].Holders[0].Name != "other" || l.Keys[1].Holders[0].Mine || l.Keys[1].Waiting != 2 {
			t.Errorf("the keys are %+v", l.Keys)
		}
		if len(l.Members) != 3 {
			t.Errorf("the members are %+v", l.Members)
		}
		k := getJSON(t, h, "/key?key=theirs").Keys[0]
		if k.Key != "theirs" || !k.Held || len(k.Queue) != 2 || k.Queue[0].Name != "third" || k.Queue[1].Name != "me" {
			t.Errorf("the page of the key has %+v", k)
		}
		for _, url := range []string{"/", "/key?key=theirs"} {
			w := get(h, url)
			if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
				t.Errorf("GET %s is %s", url, got)
			}
			for _, want := range []string{"theirs", "other", "this one"} {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("GET %s lacks %q", url, want)
				}
			}
		}
		cancel()
		theirs.Unlock()
		mine.Unlock()
	})
}

// The page says which store it shows, at the top and in the title. A session that is used only for viewing is not
// shown on the page until it has locks of its own.
func TestPageNamesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		viewer, other := newSession(t, store, nil), newSession(t, store, nil)
		h := newPage(t, viewer, &dsynchttp.Options{Store: "db1.example/app.<leasehold>"})
		lock(t, other.Mutex("theirs"))
		wants := func(want ...string) {
			t.Helper()
			for _, url := range []string{"/", "/key?key=theirs"} {
				page := get(h, url).Body.String()
				for _, w := range want {
					if !strings.Contains(page, w) {
						t.Errorf("GET %s lacks %q:\n%s", url, w, page)
					}
				}
			}
		}
		wants("db1.example/app.&lt;leasehold&gt; · leasehold</title>", `<strong class="store">db1.example/app.&lt;leasehold&gt;</strong>`, "<h1")
		own := []string{"<h1 id=\"session-h\">Session</h1>", "This process"}
		for _, part := range own {
			if page := get(h, "/").Body.String(); strings.Contains(page, part) {
				t.Errorf("the page of a session that only views has %q:\n%s", part, page)
			}
		}
		if l := getJSON(t, h, "/"); l.Store != "db1.example/app.<leasehold>" {
			t.Errorf("the JSON names the store %q", l.Store)
		}
		lock(t, viewer.Mutex("mine"))
		for _, part := range own {
			if page := get(h, "/").Body.String(); !strings.Contains(page, part) || strings.Count(page, "<h1") != 1 {
				t.Errorf("the page of a session with a lock lacks %q or does not have exactly one h1:\n%s", part, page)
			}
		}
	})
}

// The pages of the members show all members, even those beyond the thousand that the store returns
// at a time.
func TestPagesOfManyMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 2300
		store := dsynctest.NewMemory()
		for i := range n {
			if _, err := store.Register(background, driver.Member{ID: fmt.Sprintf("id%d", i), TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		h := newPage(t, newSession(t, store, nil), nil)
		seen := make(map[string]bool)
		for from := 0; from < n; from += 1000 {
			l := getJSON(t, h, fmt.Sprintf("/?n=1000&members=%d", from))
			for _, m := range l.Members {
				seen[m.Session] = true
			}
			if l.Totals.Members != n {
				t.Errorf("the page from position %d counts %d members in all, want %d", from, l.Totals.Members, n)
			}
		}
		if len(seen) != n {
			t.Errorf("the pages have %d members, want %d", len(seen), n)
		}
		if body := get(h, "/?members=2200").Body.String(); !strings.Contains(body, "2201 to 2300 of 2300") {
			t.Error("the last page does not say that it is the last")
		}
	})
}

// The page escapes keys, names and values, which come from users, and queries, which come from
// anybody.
func TestPageEscapes(t *testing.T) {
	const evil = `<script>alert("x")</script>'&--><img src=x onerror=alert(1)>`
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Name: evil, Host: evil, App: evil, Meta: map[string]string{evil: evil}})
		h := newPage(t, s, nil)
		hold, err := engine.Of(s).Hold(background, engine.Whole(evil, driver.KindElection))
		noErr(t, err)
		noErr(t, hold.Publish(background, []byte(evil+"\xff")))
		lost := newSession(t, store, nil).Mutex(evil + "2")
		lock(t, lost)
		urls := []string{"/", "/?prefix=" + urlOf(evil), "/?after=" + urlOf(evil), "/key?key=" + urlOf(evil), "/key?key=" + urlOf(evil+"none"),
			"/key?key=" + urlOf("\x00"+evil), "/?n=" + urlOf(evil), "/?window=" + urlOf(evil), "/?format=" + urlOf(evil), "/" + urlOf(evil)}
		for _, url := range urls {
			w := get(h, url)
			html := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
			if !html && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Errorf("GET %s has content type %s", url, w.Header().Get("Content-Type"))
			}
			body := w.Body.String()
			if html && (strings.Contains(body, "<script>") || strings.Contains(body, "<img") || strings.Contains(body, `alert("`)) {
				t.Errorf("GET %s has unescaped text:\n%s", url, body)
			}
		}
		ctx, cancel := context.WithCancel(background)
		events, done := follow(h, ctx, "/events")
		synctest.Wait()
		all := events.events()
		if len(all) != 1 || strings.Contains(all[0], "<script>") || strings.Contains(all[0], "<img") || !strings.Contains(all[0], "&lt;script&gt;") {
			t.Errorf("want one event, with escaped text; got %s", all)
		}
		cancel()
		<-done
		hold.Release(background)
		lost.Unlock()
	})
}

func urlOf(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

func TestPageRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := newPage(t, s, nil)
		for _, test := range []struct {
			method, url string
			code        int
			allow       string
		}{
			{"GET", "/", 200, ""},
			{"HEAD", "/", 200, ""},
			{"POST", "/", 405, "GET, HEAD"},
			{"DELETE", "/key?key=k", 405, "GET, HEAD"},
			{"POST", "/events", 405, "GET, HEAD"},
			{"GET", "/break", 405, "POST"},
			{"POST", "/break", 403, ""},
			{"GET", "/nothing", 404, ""},
			{"GET", "/key/k", 404, ""},
			{"GET", "/page.css", 200, ""},
			{"GET", "/page.js", 200, ""},
			{"GET", "/key", 400, ""},
			{"GET", "/key?key=" + strings.Repeat("k", 513), 400, ""},
			{"GET", "/key?key=unknown", 404, ""},
			{"GET", "/?n=0", 400, ""},
			{"GET", "/?n=1001", 400, ""},
			{"GET", "/?n=many", 400, ""},
			{"GET", "/?n=1000", 200, ""},
			{"GET", "/?window=2m", 400, ""},
			{"GET", "/?sort=size", 400, ""},
			{"GET", "/?sort=waiters", 200, ""},
			{"GET", "/?mine=-1", 400, ""},
			{"GET", "/?mine=100000001", 400, ""},
			{"GET", "/?mine=100000000&members=100000000", 200, ""},
			{"GET", "/?members=last", 400, ""},
			{"GET", "/?window=1h", 200, ""},
			{"GET", "/?format=xml", 400, ""},
			{"GET", "/?format=json", 200, ""},
			{"GET", "/?a=%zz", 400, ""},
			{"GET", "/events?n=0", 400, ""},
			{"GET", "/events?key=", 400, ""},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(test.method, test.url, nil))
			if w.Code != test.code || w.Header().Get("Allow") != test.allow {
				t.Errorf("%s %s is %d, Allow %q; want %d, %q", test.method, test.url, w.Code, w.Header().Get("Allow"), test.code, test.allow)
			}
			head := w.Header()
			if csp := head.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") ||
				head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s has headers %v", test.method, test.url, head)
			}
		}
	})
}

// A request gets JSON if it accepts JSON and not HTML; browsers get HTML.
func TestPageNegotiates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newPage(t, newSession(t, dsynctest.NewMemory(), nil), nil)
		for _, test := range []struct{ url, accept, want string }{
			{"/", "", "text/html; charset=utf-8"},
			{"/", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"},
			{"/", "application/json", "application/json"},
			{"/?format=json", "text/html", "application/json"},
			{"/?format=html", "application/json", "text/html; charset=utf-8"},
		} {
			r := httptest.NewRequest("GET", test.url, nil)
			r.Header.Set("Accept", test.accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("Content-Type"); got != test.want {
				t.Errorf("GET %s with %q is %s, want %s", test.url, test.accept, got, test.want)
			}
		}
	})
}

// If the store can't be reached, the page still shows what this process knows.
func TestPageWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		t.Cleanup(f.Close)
		s := newSession(t, f, nil)
		h := newPage(t, s, nil)
		mu := s.Mutex("mine")
		lock(t, mu)
		f.Cut()
		time.Sleep(2 * ttl)
		l := getJSON(t, h, "/")
		if l.Error == "" || len(l.Mine) != 1 || l.Mine[0].State != "lost" || l.Mine[0].Lost == "" || len(l.Unhealthy) != 1 {
			t.Errorf("without the store the page has %+v", l)
		}
		w := get(h, "/key?key=mine")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "can’t be read") || !strings.Contains(w.Body.String(), "Not healthy") {
			t.Errorf("GET without the store is %d: %s", w.Code, w.Body)
		}
		mu.Unlock()
	})
}

func TestPagesOfKeys(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := newPage(t, s, nil)
		for i := range 250 {
			lock(t, s.Mutex(fmt.Sprintf("a&b=%03d", i)))
		}
		lock(t, s.Mutex("z"))
		for _, n := range []int{1, 100, 125, 1000} {
			got, pages := 0, 0
			for url := fmt.Sprintf("/?prefix=a%%26b&n=%d", n); url != ""; pages++ {
				l := getJSON(t, h, url)
				for _, k := range l.Keys {
					if want := fmt.Sprintf("a&b=%03d", got); k.Key != want {
						t.Fatalf("key %d is %q, want %q", got, k.Key, want)
					}
					got++
				}
				url = strings.TrimPrefix(l.Next, ".")
			}
			if got != 250 || pages != 250/n+1 {
				t.Errorf("with n=%d there are %d keys on %d pages, want 250 on %d", n, got, pages, 250/n+1)
			}
		}
	})
}

// While nobody has the page open, it sends no commands to the store.
func TestPageReadsOnlyWhileOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		h := newPage(t, s, &dsynchttp.Options{Refresh: 2 * time.Second})
		before := store.Counts()
		time.Sleep(time.Hour)
		if n := store.Counts().Since(before).Total(); n != 0 {
			t.Errorf("the closed page sent %d commands in an hour, want 0", n)
		}
		get(h, "/")
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodKeys] != 1 || d.Total() > 2 {
			t.Errorf("one reading sent the commands %v", d.Commands)
		}
		before = store.Counts()
		ctx, cancel := context.WithCancel(background)
		_, done := follow(h, ctx, "/events")
		time.Sleep(time.Minute + time.Millisecond)
		if n := store.Counts().Since(before).Commands[dsynctest.MethodKeys]; n != 31 {
			t.Errorf("the stream read keys %d times in a minute, want 31", n)
		}
		cancel()
		<-done
		before = store.Counts()
		time.Sleep(time.Hour)
		if n := store.Counts().Since(before).Total(); n != 0 {
			t.Errorf("the page sent %d commands in the hour after the stream, want 0", n)
		}
	})
}
