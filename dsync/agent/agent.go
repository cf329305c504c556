package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/loopback"
)

// A Handler serves the locks and elections of one session: see the package comment. Create it with [New]; it must not be
// copied. When its session is closed, all open responses end: each holder is told lost, and has the grace to stop. So
// close the session first, and the server when that has returned.
//
// The server should have no WriteTimeout, since it would end responses. Its ReadTimeout does not.
type Handler struct {
	owner *dsync.Session
	s     *engine.Session
	all   *admin.Inspector
	opt   Options
	mux   *http.ServeMux
	beat  time.Duration // between two signs of life
	grace time.Duration
	open  chan struct{} // a semaphore for responses that stay open

	mu    sync.Mutex
	holds map[string]*held
}

// Options are the settings of a [Handler]. The zero value of each field is its default; a nil *Options means all
// defaults.
type Options struct {
	// Token is what each request must have as its bearer token. Default "": none, and only requests from this machine
	// are answered.
	Token string

	// MaxOpen is how many requests may wait, hold and observe at a time. Default 10,000.
	MaxOpen int
}

// New returns a handler for s. A nil opt means all defaults. New panics if the session has a HostDir: the clients
// outlive their agent, and with a HostDir its keys would become free before they have had their grace.
func New(s *dsync.Session, opt *Options) *Handler {
	o := s.Options()
	if o.HostDir != "" {
		panic("agent: the session has a HostDir, but an agent's clients outlive it; make a session without one")
	}
	h := &Handler{
		owner: s, s: engine.Of(s), all: admin.New(s), mux: http.NewServeMux(),
		beat: min(o.TTL/6, 5*time.Second), grace: o.Grace,
		holds: make(map[string]*held),
	}
	if opt != nil {
		h.opt = *opt
	}
	if h.opt.MaxOpen <= 0 {
		h.opt.MaxOpen = 10_000
	}
	h.open = make(chan struct{}, h.opt.MaxOpen)
	for _, r := range h.routes() {
		h.mux.Handle(r.path, r)
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Errorf("there is no %s; see /v1/openapi.json, and write / in keys as %%2F", r.URL.EscapedPath()))
	})
	return h
}

//go:embed openapi.json
var openAPI []byte

// A route is one row of the package comment's list of paths.
type route struct {
	method, path, params string
	serve                func(http.ResponseWriter, *http.Request, query)
}

func (h *Handler) routes() []route {
	return []route{
		{"GET", "/v1/locks/{key}", "wait limit mode of n", h.whileOpen(h.lock)},
		{"GET", "/v1/once/{key}", "wait limit", h.whileOpen(h.once)},
		{"GET", "/v1/periodic/{key}", "tick wait limit", h.whileOpen(h.periodic)},
		{"GET", "/v1/elections/{key}", "value preference limit", h.whileOpen(h.campaign)},
		{"GET", "/v1/elections/{key}/leader", "", h.leader},
		{"GET", "/v1/elections/{key}/leaders", "", h.whileOpen(h.leaders)},
		{"GET", "/v1/status/{key}", "", h.status},
		{"GET", "/v1/health", "", h.health},
		{"GET", "/v1/openapi.json", "", func(w http.ResponseWriter, _ *http.Request, _ query) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openAPI)
		}},
		{"POST", "/v1/holds/{id}/done", "", h.done},
		{"POST", "/v1/holds/{id}/progress", "limit", h.progress},
	}
}

// ServeHTTP serves r if it is of the route's method and has no parameters that the route does not know. http.ServeMux
// would send HEAD requests to a GET route, where they would take a lock, and answer others in plain text.
func (t route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != t.method {
		w.Header().Set("Allow", t.method)
		refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("the method is %s; %s takes only %s", r.Method, t.path, t.method))
		return
	}
	if t.method == "GET" && r.ContentLength != 0 {
		// The server does not see that a client has gone before it has read the client's whole request.
		refuse(w, http.StatusBadRequest, errors.New("the request has a body; GET takes its parameters from the URL"))
		return
	}
	q, err := parseQuery(r, t.params)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	t.serve(w, r, q)
}

// ServeHTTP serves the paths of the package comment. It can be mounted with [http.StripPrefix].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if status, err := h.mayNot(r); err != nil {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		refuse(w, status, err)
		return
	}
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		// http.ServeMux would redirect to the clean path, which can name another key.
		refuse(w, http.StatusBadRequest, fmt.Errorf("the path %s has empty parts or dots; percent-encode the key, / as %%2F", p))
		return
	}
	h.mux.ServeHTTP(w, r)
}

// mayNot returns an error, and its HTTP status, if the sender of r may not use the handler.
func (h *Handler) mayNot(r *http.Request) (int, error) {
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if r.Header.Get(name) != "" {
			return http.StatusForbidden, fmt.Errorf("the request has the header %s, so it comes from a browser; the agent is for programs", name)
		}
	}
	// Safari before 16.4 sends neither with a GET for an image or a frame.
	if name := r.UserAgent(); strings.HasPrefix(name, "Mozilla/") {
		return http.StatusForbidden, fmt.Errorf("the User-Agent is %q, which is a browser's; a program must send a name of its own", name)
	}
	if h.opt.Token != "" {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(h.opt.Token)) // so that the lengths are the same
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return http.StatusUnauthorized, errors.New("the token is missing or wrong; send Authorization: Bearer TOKEN")
		}
		return 0, nil
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "Via"} {
		if r.Header.Get(name) != "" {
			return http.StatusForbidden, fmt.Errorf("the request has the header %s, so it came through a proxy, perhaps from another machine; give the agent a token", name)
		}
	}
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, socket := at.(*net.UnixAddr); socket {
		return 0, nil
	}
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		return http.StatusForbidden, errors.New("the agent has no token, so it serves only loopback addresses and Unix sockets; give it a token")
	}
	if !loopback.Is(r.Host) {
		return http.StatusMisdirectedRequest, fmt.Errorf("the request is for the host %q; without a token, the agent answers only requests to localhost", r.Host)
	}
	return 0, nil
}

// whileOpen returns serve for requests that can stay open. At most Options.MaxOpen of them are served at a time.
func (h *Handler) whileOpen(serve func(http.ResponseWriter, *http.Request, query)) func(http.ResponseWriter, *http.Request, query) {
	return func(w http.ResponseWriter, r *http.Request, q query) {
		select {
		case h.open <- struct{}{}:
			defer func() { <-h.open }()
			serve(w, r, q)
		default:
			refuse(w, http.StatusServiceUnavailable, fmt.Errorf("%d requests are open, and no more may be; close one", cap(h.open)))
		}
	}
}

// health reports what [dsync.Session.Healthy] does.
func (h *Handler) health(w http.ResponseWriter, _ *http.Request, _ query) {
	if err := h.owner.Healthy(); err != nil {
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	answer(w, http.StatusOK, struct {
		Healthy bool `json:"healthy"`
	}{true})
}

// answer sends v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// refuse sends err as JSON.
func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, errorLine{Error: err.Error()})
}
