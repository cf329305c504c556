package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

const (
	ttl   = testkit.TTL
	beat  = ttl / 6
	grace = ttl / 10
)

var (
	background = context.Background()
	newSession = testkit.NewSession
	noErr      = testkit.NoErr
	bubble     = synctest.Test
)

// A world is an agent that serves over pipes, so that it runs in a bubble, and the store of its session.
type world struct {
	t      *testing.T
	memory *dsynctest.Memory
	faulty *dsynctest.Faulty // the agent's way to the store
	s      *dsync.Session    // the agent's
	other  *dsync.Session    // a program in Go, with a way of its own
	pipes  *pipes
	server *http.Server
	client *http.Client
}

func newWorld(t *testing.T, opt *agent.Options) *world {
	return newWorldOf(t, &dsync.Options{}, opt)
}

// newWorldOf returns a world whose agent's session has options of its own.
func newWorldOf(t *testing.T, session *dsync.Options, opt *agent.Options) *world {
	w := &world{t: t, memory: dsynctest.NewMemory()}
	w.faulty = testkit.NewFaulty(t, w.memory, nil)
	w.other = newSession(t, w.memory, &dsync.Options{Name: "other"})
	session.Name = "agent"
	w.s = newSession(t, w.faulty, session)
	w.pipes = newPipes()
	w.server = &http.Server{
		Handler:           documented(t, agent.New(w.s, opt)),
		ReadTimeout:       20 * time.Second, // shorter than some responses are open
		ReadHeaderTimeout: 10 * time.Second,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.server.Serve(w.pipes)
	}()
	transport := &http.Transport{DialContext: w.pipes.dial, MaxIdleConnsPerHost: -1}
	w.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		w.s.Close(background)
		transport.CloseIdleConnections()
		w.server.Close()
		<-done
	})
	return w
}

// pipes are a listener and its dialer.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A line is a line of a response, or its body.
type line struct {
	Held, Elected, ID, Tick, Lost, Done, Error string
	Term, Token                                int64
	Left                                       *float64 `json:"left_ms"`
	Unix                                       int64    `json:"unix_ms"`
	Grace                                      float64  `json:"grace_ms"`
	Value                                      *string
	Leader, Holder                             *struct {
		Name, Value string
		Term        int64
	}
}

// A response is one that may still be open.
type response struct {
	t    *testing.T
	stop context.CancelFunc

	mu     sync.Mutex
	status int // 0: there is none yet
	lines  []line
	beats  int  // lines with nothing but left_ms
	last   line // the last of them
	ended  bool // for whatever reason
}

// get requests a path and reads the response in the background.
func (w *world) get(path string) *response {
	ctx, cancel := context.WithCancel(background)
	w.t.Cleanup(cancel)
	r := &response{t: w.t, stop: cancel}
	go r.read(ctx, w.client, path)
	synctest.Wait()
	return r
}

func (r *response) read(ctx context.Context, client *http.Client, path string) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended = true
	}()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil)
	if err != nil {
		r.t.Error(err)
		return
	}
	answer, err := client.Do(req)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	r.mu.Lock()
	r.status = answer.StatusCode
	r.mu.Unlock()
	for in := bufio.NewScanner(answer.Body); in.Scan(); {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			r.t.Errorf("GET %s: %v in %s", path, err, in.Bytes())
		}
		r.mu.Lock()
		if l.Left != nil && l.ID == "" {
			r.beats, r.last = r.beats+1, l
		} else {
			r.lines = append(r.lines, l)
		}
		r.mu.Unlock()
	}
}

// close closes the response, as a client that ends does.
func (r *response) close() {
	r.stop()
	synctest.Wait()
}

// next returns the next line and fails the test if there is none yet. It skips signs of life.
func (r *response) next() line {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		r.t.Fatalf("no line has come; status %d, ended: %t", r.status, r.ended)
	}
	l := r.lines[0]
	r.lines = r.lines[1:]
	return l
}

// signs returns how many signs of life have come.
func (r *response) signs() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beats
}

// later waits for the next line, to 10 ms.
func (r *response) later() line {
	r.t.Helper()
	for range 10 * ttl / (10 * time.Millisecond) {
		time.Sleep(10 * time.Millisecond)
		r.mu.Lock()
		n := len(r.lines)
		r.mu.Unlock()
		if n > 0 {
			break
		}
	}
	return r.next()
}

// wantOpen fails the test unless the response is open and there is no further line.
func (r *response) wantOpen() { r.t.Helper(); r.want(false) }

// wantEnd fails the test unless the response has ended and there was no further line.
func (r *response) wantEnd() { r.t.Helper(); r.want(true) }

func (r *response) want(ended bool) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) > 0 || r.ended != ended {
		r.t.Fatalf("further lines: %+v; ended: %t, want none, and %t", r.lines, r.ended, ended)
	}
}

// hold requests a lock and fails the test unless it is held at once.
func (w *world) hold(path string) (*response, line) {
	w.t.Helper()
	r := w.get(path)
	l := r.next()
	if l.Held+l.Elected == "" || l.ID == "" || l.Token == 0 || l.Left == nil || l.Grace != float64(grace.Milliseconds()) {
		w.t.Fatalf("the first line of %s is %+v", path, l)
	}
	return r, l
}

// wait requests a path and fails the test unless the request waits.
func (w *world) wait(path string) *response {
	w.t.Helper()
	r := w.get(path)
	r.wantOpen()
	return r
}

// post sends a POST and returns the status and the error.
func (w *world) post(path, body string) (int, string) {
	w.t.Helper()
	answer, err := w.client.Post("http://localhost"+path, "", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var l line
	if len(text) > 0 {
		if err := json.Unmarshal(text, &l); err != nil {
			w.t.Errorf("POST %s: %v in %s", path, err, text)
		}
	}
	synctest.Wait()
	return answer.StatusCode, l.Error
}

// done calls done and fails the test unless the answer has the status.
func (w *world) done(l line, body string, status int) {
	w.t.Helper()
	if got, err := w.post("/v1/holds/"+l.ID+"/done", body); got != status {
		w.t.Errorf("done: status %d (%s), want %d", got, err, status)
	}
}

// An openAPI is the part of the description that tests read.
type openAPI struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]struct{ Description string }
	}
}

type operation struct {
	Parameters []parameter
	Responses  map[string]struct {
		Ref string `json:"$ref"`
	}
}

type parameter struct {
	Ref, Name, In string
	Required      bool
}

func (p *parameter) UnmarshalJSON(b []byte) error {
	var all struct {
		Ref      string `json:"$ref"`
		Name, In string
		Required bool
	}
	err := json.Unmarshal(b, &all)
	*p = parameter(all)
	return err
}

func readOpenAPI(t *testing.T) (d openAPI) {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	noErr(t, err)
	noErr(t, json.Unmarshal(text, &d))
	return d
}

// operation returns what the description says of a method, in lower case, of a path.
func (d openAPI) operation(t *testing.T, path, method string) (o operation) {
	t.Helper()
	if err := json.Unmarshal(d.Paths[path][method], &o); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return o
}

// documented returns h, and fails the test if h answers a known path with a status that the description lacks.
func documented(t *testing.T, h *agent.Handler) http.Handler {
	d := readOpenAPI(t)
	find := http.NewServeMux()
	for path := range d.Paths {
		find.Handle(path, http.NotFoundHandler())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &status{ResponseWriter: w, code: http.StatusOK}
		h.ServeHTTP(seen, r)
		_, path := find.Handler(r)
		method := strings.ToLower(r.Method)
		if path == "" || d.Paths[path][method] == nil || slices.Contains([]int{401, 403, 405, 421}, seen.code) {
			return
		}
		if _, ok := d.operation(t, path, method).Responses[strconv.Itoa(seen.code)]; !ok {
			t.Errorf("%s %s: status %d is not in openapi.json", r.Method, r.URL, seen.code)
		}
	})
}

// A status remembers the status of a response.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// serve returns the status and the error of a request, which arrives at the local address at.
func serve(h http.Handler, r *http.Request, at net.Addr) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at)))
	var l line
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
		return w.Code, fmt.Sprintf("%v in %s", err, w.Body)
	}
	return w.Code, l.Error
}
