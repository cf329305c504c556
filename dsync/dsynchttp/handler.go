package dsynchttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
)

// A Handler serves the page of one session. Create it with [New], mount it with [http.StripPrefix], and close it no
// later than the session. A Handler must not be copied. All methods may be called concurrently.
type Handler struct {
	s       *dsync.Session
	all     *admin.Inspector // inspects the store of s
	opt     Options
	mux     *http.ServeMux
	history *recorder
	viewers chan struct{} // a semaphore for streams of events
	cors    *http.CrossOriginProtection

	once   sync.Once
	closed chan struct{}
	stop   func() // ends the recording
}

// maxViewers is the number of streams of events that may be open at the same time.
const maxViewers = 16

// New returns a handler for s and starts to record the holds of this process. A nil opt
// means all defaults.
func New(s *dsync.Session, opt *Options) *Handler {
	h := &Handler{
		s: s, all: admin.New(s), opt: opt.withDefaults(),
		mux:     http.NewServeMux(),
		history: newRecorder(maxKeys, maxSpans),
		viewers: make(chan struct{}, maxViewers),
		cors:    http.NewCrossOriginProtection(),
		closed:  make(chan struct{}),
	}
	h.stop = s.AddHooks(h.history.hooks())
	h.mux.HandleFunc("GET /{$}", h.overview)
	h.mux.HandleFunc("GET /key", h.key)
	h.mux.HandleFunc("GET /events", h.events)
	h.mux.HandleFunc("GET /page.css", asset("text/css; charset=utf-8", pageCSS))
	h.mux.HandleFunc("GET /page.js", asset("text/javascript; charset=utf-8", pageJS))
	h.mux.Handle("POST /break", h.cors.Handler(http.HandlerFunc(h.breakKey)))
	return h
}

// Close ends the streams of events and the recording; the handler still serves other requests.
// [http.Server.Shutdown] waits for streams, so register Close with the server's RegisterOnShutdown.
// Close always returns nil.
func (h *Handler) Close() error {
	h.once.Do(func() {
		h.stop()
		close(h.closed)
	})
	return nil
}

// ServeHTTP serves the page. Its links are relative, so it can be mounted at any path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
		"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

// asset returns a handler that serves a file of the page.
func asset(contentType, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(content))
	}
}

// Options are the settings of a [Handler]. The zero value of each field is its
// default; a nil *Options means all defaults.
type Options struct {
	// Refresh is the interval at which the store is read for an open page. If an update takes longer than a tenth
	// of Refresh, the interval is extended to ten times the duration of that update. Default 2 s; less than 100
	// ms counts as 100 ms.
	Refresh time.Duration

	// Store names what the page shows, such as "db1.example,db2.example/app.leasehold". The name is
	// at the top of the page and in its title, so that nobody breaks a lock in the wrong database.
	// Default "": no name.
	Store string

	// Authorize is called before the page breaks a lock. If it returns an error, the lock is not
	// broken, and the user sees the error's message. Cross-origin requests have been refused
	// already (see [net/http.CrossOriginProtection]), but Authorize must authenticate the user, for
	// example by a client certificate or a header that a proxy has set. Authorize may parse the
	// form, but only the first 16 KiB of the body can be read. Default nil: locks can't be broken,
	// and the page has no button for it.
	Authorize func(*http.Request) error
}

func (o *Options) withDefaults() Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Refresh == 0 {
		r.Refresh = 2 * time.Second
	}
	r.Refresh = max(r.Refresh, 100*time.Millisecond)
	return r
}

// breakKey breaks the lock of the key in the form, if the request is authorised. The handler's
// CrossOriginProtection has already refused cross-origin requests.
func (h *Handler) breakKey(w http.ResponseWriter, r *http.Request) {
	if h.opt.Authorize == nil {
		http.Error(w, "breaking locks is not enabled here: see dsynchttp.Options.Authorize", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10) // before Authorize, which may parse the form
	if err := h.opt.Authorize(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.PostForm.Get("key")
	if err := dsync.CheckKey(key); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Don't wait for the whole grace of a notified holder: the next page shows whether the key is
	// free.
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	err := h.all.Break(ctx, key)
	q := query{key: key, n: 100, window: windows[1]}
	v := q.values()
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		v.Set("asked", "")
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Location", "key?"+v.Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// events streams the page's content whenever it has changed. The stream ends with the
// request, the handler or the session.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, r.URL.Query().Has("key"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case h.viewers <- struct{}{}:
		defer func() { <-h.viewers }()
	default:
		http.Error(w, "too many open pages; this one can still be reloaded", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would buffer the stream
	// Each write has a deadline, so that a client that no longer reads can't block this goroutine. The server's
	// WriteTimeout limits a whole response, and would end the stream.
	const writeTimeout = 10 * time.Second
	send := func(b []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := w.Write(b)
		return err == nil && control.Flush() == nil
	}
	wait := time.NewTimer(h.opt.Refresh)
	defer wait.Stop()
	var last []string // lines of the content
	var since anchor
	lastSent := time.Now()
	for first := true; ; first = false {
		if !first {
			select {
			case <-wait.C:
			case <-h.closed:
				return
			case <-r.Context().Done():
				return
			}
		}
		began := time.Now()
		l := h.read(r.Context(), q, since)
		since = l.anchor
		rendered, err := render("content", l)
		if err != nil || r.Context().Err() != nil {
			return
		}
		content := lines(rendered)
		switch {
		case !slices.Equal(content, last):
			if !send(event(last, content, time.Since(since.host), q.window)) {
				return
			}
			last, lastSent = content, time.Now()
		case time.Since(lastSent) > writeTimeout: // send a comment to find out whether the client is still connected
			if !send([]byte(":\n\n")) {
				return
			}
			lastSent = time.Now()
		}
		if l.Session.Closed {
			return
		}
		// Reading takes a while if there are many keys, or if the store is slow. Then read less often: reading for an
		// open page must not take more than a tenth of the time.
		took := time.Since(began)
		wait.Reset(max(h.opt.Refresh-took, 9*took))
	}
}
