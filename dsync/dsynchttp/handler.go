package dsynchttp

import (
	"net/http"
	"sync"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Handler serves the page of one session. Make one with [New], mount it with
// [http.StripPrefix], and Close it when the session is closed, or before; it must
// not be copied. All methods may be called concurrently.
type Handler struct {
	s       *dsync.Session
	opt     Options
	mux     *http.ServeMux
	history *recorder
	viewers chan struct{} // has room for as many streams of events as there may be
	cors    *http.CrossOriginProtection

	once   sync.Once
	closed chan struct{}
	stop   func() // what the hooks record
}

// maxViewers is how many streams of events there may be.
const maxViewers = 16

// New returns a handler, and begins to record what the process holds.
func New(s *dsync.Session, opt *Options) *Handler {
	h := &Handler{
		s: s, opt: opt.withDefaults(),
		mux:     http.NewServeMux(),
		history: newRecorder(maxKeys, maxSpans),
		viewers: make(chan struct{}, maxViewers),
		cors:    http.NewCrossOriginProtection(),
		closed:  make(chan struct{}),
	}
	h.stop = s.Listen(h.history.hooks())
	h.mux.HandleFunc("GET /{$}", h.overview)
	h.mux.HandleFunc("GET /key", h.key)
	h.mux.HandleFunc("GET /events", h.events)
	h.mux.HandleFunc("GET /page.css", asset("text/css; charset=utf-8", pageCSS))
	h.mux.HandleFunc("GET /page.js", asset("text/javascript; charset=utf-8", pageJS))
	h.mux.Handle("POST /break", h.cors.Handler(http.HandlerFunc(h.breakKey)))
	return h
}

// Close ends the streams of events and the recording. The page goes on to be
// served. For [http.Server.Shutdown], which waits for streams, register it with
// RegisterOnShutdown. It always returns nil.
func (h *Handler) Close() error {
	h.once.Do(func() {
		h.stop()
		close(h.closed)
	})
	return nil
}

// ServeHTTP serves the page, under paths that are relative to where it is mounted.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
		"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

// asset serves a file of the page.
func asset(contentType, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(content))
	}
}
