package dsynchttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

const ttl = testkit.TTL

var background = context.Background()

var (
	newSession = testkit.NewSession
	noErr      = testkit.NoErr
	inBubble   = testkit.InBubble
	lock       = testkit.Lock
	bubble     = synctest.Test
)

// newPage returns a page that is closed at the end of the test.
func newPage(t testing.TB, s *dsync.Session, opt *dsynchttp.Options) *dsynchttp.Handler {
	h := dsynchttp.New(s, opt)
	t.Cleanup(func() { h.Close() })
	return h
}

// get returns the answer to a GET of url.
func get(h http.Handler, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
	return w
}

// A view holds the parts of the page's JSON that tests read.
type view struct {
	Store   string
	Session struct {
		ID     string
		Left   float64 `json:"left_ms"`
		Lease  float64 `json:"lease_ms"`
		Closed bool
	}
	Unhealthy []string
	Mine      []struct {
		Key, Kind, State, Lost string
		For                    float64 `json:"for_ms"`
		Token                  int64
		Position               int
		WaitersAhead           int `json:"waiters_ahead"`
	}
	Keys []struct {
		Key, Kind   string
		Held        bool
		HolderCount int `json:"holder_count"`
		Sealed      bool
		Token       int64
		Waiting     int
		Value       string
		Base64      []byte `json:"value_base64"`
		Holders     []struct {
			Name, Host, Session string
			Token               int64
			For                 float64 `json:"for_ms"`
			Mine, Lapsed        bool
		}
		Queue   []struct{ Name string }
		History []struct {
			Who, Lost        string
			Mine             bool
			Token            int64
			Start, Seen, End time.Time
		}
	}
	Members []struct {
		Session, Name, Version string
		Mine                   bool
	}
	Waits []struct {
		Waiter, Holder struct {
			Name string
			Mine bool
		}
		Keys  []string
		More  int
		Cycle bool
	}
	Read, Matched int
	Totals        struct{ Mine, Members int }
	Next, Error   string
}

// getJSON returns the JSON at url.
func getJSON(t *testing.T, h http.Handler, url string) (l view) {
	t.Helper()
	r := httptest.NewRequest("GET", url, nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != "application/json" {
		t.Fatalf("GET %s is %d, %s: %s", url, w.Code, got, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
		t.Fatalf("GET %s: %v in %s", url, err, w.Body)
	}
	return l
}

// A stream is a response that can be read while it is still being written.
type stream struct {
	code   int
	header http.Header

	mu   sync.Mutex
	body bytes.Buffer
}

func (s *stream) Header() http.Header  { return s.header }
func (s *stream) WriteHeader(code int) { s.code = code }
func (s *stream) Flush()               {}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body.Write(b)
}

// events returns the events that came since the last call.
func (s *stream) events() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Split(s.body.String(), "\n\n")
	s.body.Reset()
	return all[:len(all)-1]
}

// follow gets a stream of events on a goroutine of its own; done is closed when it has
// ended.
func follow(h http.Handler, ctx context.Context, url string) (s *stream, done chan struct{}) {
	s, done = &stream{code: http.StatusOK, header: make(http.Header)}, make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(s, httptest.NewRequest("GET", url, nil).WithContext(ctx))
	}()
	return s, done
}
