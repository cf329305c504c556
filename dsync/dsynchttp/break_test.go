package dsynchttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// post posts the form that breaks key. headers are names, each followed by its value.
func post(h http.Handler, key string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/break", strings.NewReader(url.Values{"key": {key}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBreakIsRefused(t *testing.T) {
	var asked int
	allow := &dsynchttp.Options{Authorize: func(*http.Request) error { asked++; return nil }}
	refuse := &dsynchttp.Options{Authorize: func(*http.Request) error { return errors.New("not you") }}
	for name, test := range map[string]struct {
		opt     *dsynchttp.Options
		key     string
		headers []string
		code    int
		body    string
	}{
		"without Authorize":   {nil, "k", nil, 403, "not enabled"},
		"by Authorize":        {refuse, "k", nil, 403, "not you"},
		"from another site":   {allow, "k", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin"},
		"from a sibling":      {allow, "k", []string{"Sec-Fetch-Site", "same-site"}, 403, "cross-origin"},
		"from another origin": {allow, "k", []string{"Origin", "https://elsewhere.example"}, 403, "cross-origin"},
		"without a key":       {allow, "", nil, 400, "invalid key"},
		"too long":            {allow, strings.Repeat("k", 17<<10), nil, 400, "too large"},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			mu := s.Mutex("k")
			lock(t, mu)
			asked = 0
			w := post(newPage(t, s, test.opt), test.key, test.headers...)
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("the response is %d: %s; want %d and %q", w.Code, w.Body, test.code, test.body)
			}
			if strings.HasPrefix(name, "from") && asked != 0 {
				t.Error("Authorize was called for a request that another site's page sent")
			}
			if mu.Token() == 0 {
				t.Error("the lock was broken")
			}
			mu.Unlock()
		})
	}
}

// Authorize may read the body, for example a token in the form. It can read only as much of the body as the page itself
// reads.
func TestAuthorizeReadsALimitedBody(t *testing.T) {
	for key, tooLarge := range map[string]bool{"k": false, strings.Repeat("k", 1<<20): true} {
		inBubble(t, fmt.Sprint(len(key), " bytes"), func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			w := post(newPage(t, s, &dsynchttp.Options{Authorize: func(r *http.Request) error {
				err := r.ParseForm()
				var limit *http.MaxBytesError
				if errors.As(err, &limit) != tooLarge || (r.PostForm.Get("key") == key) == tooLarge {
					t.Errorf("ParseForm in Authorize: %v, and a key of %d bytes", err, len(r.PostForm.Get("key")))
				}
				return err
			}}), key)
			if want := map[bool]int{false: 303, true: 403}[tooLarge]; w.Code != want {
				t.Errorf("the response is %d: %s; want %d", w.Code, w.Body, want)
			}
		})
	}
}

func TestBreakTellsTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, &dsync.Options{AlwaysListen: true})
		h := newPage(t, s, &dsynchttp.Options{Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "me" {
				return errors.New("who are you?")
			}
			return nil
		}})
		const key = "a/b&c"
		mu := other.Mutex(key)
		lock(t, mu)
		if w := get(h, "/key?key="+url.QueryEscape(key)); !strings.Contains(w.Body.String(), "Break this lock") {
			t.Error("the page has no button")
		}
		go func() {
			<-mu.Lost()
			mu.Unlock()
		}()
		synctest.Wait()
		w := post(h, key, "Sec-Fetch-Site", "same-origin", "Authorization", "me")
		if got, want := w.Header().Get("Location"), "key?key="+url.QueryEscape(key); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("the response is %d to %q, want 303 to %q", w.Code, got, want)
		}
		if l := getJSON(t, h, "/"); l.Keys[0].Held {
			t.Error("the key is still held")
		}
	})
}

// A page without Authorize has no button to break a lock.
func TestPageHasNoButtonWithoutAuthorize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		mu := s.Mutex("k")
		lock(t, mu)
		if w := get(newPage(t, s, nil), "/key?key=k"); strings.Contains(w.Body.String(), "<form") {
			t.Errorf("the page has a form:\n%s", w.Body)
		}
		mu.Unlock()
	})
}

// If the holder does not give up the key within 3 seconds, the page responds anyway and says so.
func TestBreakDoesNotWaitForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		h := newPage(t, s, &dsynchttp.Options{Authorize: func(*http.Request) error { return nil }})
		f := dsynctest.NewFaulty(store, nil)
		t.Cleanup(f.Close)
		mu := newSession(t, f, nil).Mutex("k")
		lock(t, mu)
		f.Cut()
		began := time.Now()
		w := post(h, "k")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the response took %v, want 3s", took)
		}
		to := strings.TrimPrefix(w.Header().Get("Location"), "key")
		if page := get(h, "/key"+to); !strings.Contains(page.Body.String(), "not given up within 3 seconds") {
			t.Errorf("the page %q does not say that the key is still held: %s", to, page.Body)
		}
		lock(t, other.Mutex("k")) // in the end the key is free
		mu.Unlock()
	})
}
