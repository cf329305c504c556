package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// serve starts leasehold serve and returns the URL that it prints.
func serve(t *testing.T, store driver.Store, flags ...string) (at string, end <-chan result) {
	t.Helper()
	out, end := start(t.Context(), store, append([]string{"serve", "--listen", "localhost:0"}, flags...)...)
	for !strings.HasSuffix(at, "\n") {
		select {
		case got := <-end:
			t.Fatalf("serve ended: %+v", got)
		case <-time.After(time.Millisecond):
			at += out.take()
		}
	}
	if !strings.HasPrefix(at, "http://localhost:") {
		t.Fatalf("serve printed %q, want a URL on localhost", at)
	}
	return strings.TrimSpace(at), end
}

// terminate sends SIGTERM to this process.
func terminate(t *testing.T) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	noErr(t, err)
	noErr(t, self.Signal(syscall.SIGTERM))
}

// The page shows the keys of all processes, writes nothing and breaks nothing. SIGTERM ends serve
// and its streams cleanly.
func TestServe(t *testing.T) {
	s := newScene(t)
	s.acquire(claim("k", "a.1", driver.KindMutex, 1, 1))
	before := s.Counts()
	at, end := serve(t, s.Memory)

	answer, err := http.Get(at + "?format=json")
	noErr(t, err)
	defer answer.Body.Close()
	var seen struct {
		Keys []struct {
			Key     string
			Holders []struct{ Host string }
		}
		Members []struct{ Session string }
	}
	noErr(t, json.NewDecoder(answer.Body).Decode(&seen))
	if len(seen.Keys) != 1 || seen.Keys[0].Key != "k" || seen.Keys[0].Holders[0].Host != "host-a" || len(seen.Members) != 3 {
		t.Errorf("the page shows %+v, want key k of host-a, and 3 members", seen)
	}

	refused, err := http.PostForm(at+"break", url.Values{"key": {"k"}})
	noErr(t, err)
	refused.Body.Close()
	if refused.StatusCode != http.StatusForbidden {
		t.Errorf("the response to break is %s, want it to be forbidden", refused.Status)
	}

	stream, err := http.Get(at + "events")
	noErr(t, err)
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	if line, err := lines.ReadString('\n'); line != "event: content\n" {
		t.Errorf("the stream begins with %q, %v", line, err)
	}
	s.wrote(before)

	terminate(t)
	begin := time.Now()
	if got := <-end; got != (result{}) {
		t.Errorf("serve: %+v, want a clean end", got)
	}
	if took := time.Since(begin); took >= shutdownTime {
		t.Errorf("serve took %v to end, want it not to wait for streams", took)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the stream ended with %v, want EOF", err)
	}
}

func TestServeAllowBreak(t *testing.T) {
	store := dsynctest.NewMemory()
	s, h := holding(t, store, "k")
	defer s.Close(context.Background())
	go func() {
		<-h.Lost()
		h.Release(context.Background())
	}()
	at, end := serve(t, store, "--allow-break")
	answer, err := http.PostForm(at+"break", url.Values{"key": {"k"}})
	noErr(t, err)
	answer.Body.Close()
	if st, err := admin.New(s).Status(t.Context(), "k"); err != nil || st.Held() {
		t.Errorf("the response to break is %s, but the key is held by %v, %v", answer.Status, st.Holders, err)
	}
	terminate(t)
	if got := <-end; got != (result{}) {
		t.Errorf("serve: %+v, want a clean end", got)
	}
	alone(t, store, s.ID())
}

// At a loopback address, serve answers only requests whose Host is one of this machine's own names. A request that a
// browser sends for a hostile site has another Host.
func TestServeRefusesOtherHosts(t *testing.T) {
	s, err := dsync.New(dsynctest.NewMemory(), nil)
	noErr(t, err)
	defer s.Close(context.Background())
	page := dsynchttp.New(s, nil)
	for at, want := range map[string]map[string]int{
		"127.0.0.1:80": {"localhost:80": 200, "localhost": 200, "127.0.0.1:80": 200, "[::1]": 200, "evil.example:80": 421, "": 421, "127.0.0.1.evil.example": 421},
		"[::1]:80":     {"[::1]:80": 200, "evil.example": 421},
		"[::]:80":      {"localhost:80": 200, "fleet.example": 200},
	} {
		addr, err := net.ResolveTCPAddr("tcp", at)
		noErr(t, err)
		server := newPageServer(page, page, addr)
		for host, status := range want {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			r.Host = host
			server.Handler.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("at %s, a request to %q: status %d, want %d", at, host, w.Code, status)
			}
		}
	}
}

// A stream outlives the server's time-outs, which disconnect slow clients.
func TestServeTimeouts(t *testing.T) {
	s, err := dsync.New(dsynctest.NewMemory(), nil)
	noErr(t, err)
	defer s.Close(context.Background())
	l, err := net.Listen("tcp", "localhost:0")
	noErr(t, err)
	page := dsynchttp.New(s, &dsynchttp.Options{Refresh: 100 * time.Millisecond})
	server := newPageServer(page, page, l.Addr())
	longest := time.Duration(0)
	for _, d := range []*time.Duration{&server.ReadTimeout, &server.ReadHeaderTimeout, &server.WriteTimeout, &server.IdleTimeout} {
		*d /= 100 // shorter time-outs make the test fast
		longest = max(longest, *d)
	}
	go server.Serve(l)
	defer server.Close()

	slow, err := net.Dial("tcp", l.Addr().String())
	noErr(t, err)
	defer slow.Close()
	slow.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n")) // and then the client sends nothing more
	slow.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(slow); err != nil {
		t.Errorf("a client that does not finish its request: %v, want it disconnected", err)
	}

	stream, err := http.Get("http://" + l.Addr().String() + "/events")
	noErr(t, err)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && lines.Text() != "" { // the first event
	}
	time.Sleep(longest + 500*time.Millisecond)
	mu := s.Mutex("k")
	mu.Lock()
	defer mu.Unlock()
	for lines.Scan() {
		if strings.Contains(lines.Text(), "key=k") {
			return
		}
	}
	t.Errorf("the stream ended (%v) before it showed the key", lines.Err())
}

func TestServeBadAddress(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	noErr(t, err)
	defer l.Close()
	for _, c := range []struct {
		listen string
		status int
		want   string
	}{
		{"8080", exitUsage, `--listen is "8080"; it must be a host and a port, such as localhost:8080 or :8080`},
		{l.Addr().String(), exitFailed, "can't serve at " + l.Addr().String() + ": "},
		{"localhost:many", exitFailed, "can't serve at localhost:many: "},
	} {
		got := command(t, dsynctest.NewMemory(), "serve", "--listen", c.listen)
		if got.status != c.status || !strings.HasPrefix(got.err, "leasehold: "+c.want) || strings.Count(got.err, "\n") != 1 || got.out != "" {
			t.Errorf("%q: %+v, want status %d and %q", c.listen, got, c.status, c.want)
		}
	}
}
