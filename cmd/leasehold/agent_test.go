//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// overSocket returns a client of the agent at a Unix socket.
func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// hold requests a lock and returns the lines of the response from the second on.
func hold(t *testing.T, c *http.Client, at, key string) (lines *bufio.Reader, release func() error) {
	t.Helper()
	answer, err := c.Get(at + "v1/locks/" + key)
	noErr(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	lines = bufio.NewReader(answer.Body)
	if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, `{"held":"`+key+`","id":"`) {
		t.Fatalf("the response begins with %q, %v", line, err)
	}
	return lines, answer.Body.Close
}

// At a Unix socket with its mode, agent holds locks for as long as responses are open. SIGTERM tells the clients that
// their locks are lost, and ends agent cleanly when they have stopped.
func TestAgentAtASocket(t *testing.T) {
	store := dsynctest.NewMemory()
	path := filepath.Join(t.TempDir(), "agent.sock")
	out, end := start(t.Context(), store, "agent", "--listen", "unix:"+path, "--socket-mode", "0660", "--ttl", "5s", "--grace", "100ms")
	for at := ""; at != "unix:"+path+"\n"; at += out.take() {
		select {
		case got := <-end:
			t.Fatalf("agent ended: %+v", got)
		case <-time.After(time.Millisecond):
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	second := command(t, store, "agent", "--listen", "unix:"+path)
	if second.status != exitFailed || !strings.Contains(second.err, "another process serves there") {
		t.Errorf("a second agent there: %+v", second)
	}

	c := overSocket(path)
	_, release := hold(t, c, "http://agent/", "first")
	release()
	mu := session(t, store).Mutex("first")
	noErr(t, mu.LockContext(t.Context()))
	mu.Unlock()
	lines, _ := hold(t, c, "http://agent/", "second")
	terminate(t)
	last := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Errorf("the response ended with %v", err)
			}
			break
		}
		last = line
	}
	if !strings.HasPrefix(last, `{"lost":"`) {
		t.Errorf("the last line is %q, want lost", last)
	}
	if got := <-end; got != (result{}) {
		t.Errorf("agent: %+v, want a clean end", got)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	free(t, store, "second")
}

// When agent is killed, all responses end at once.
func TestAgentKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	cmd := onMemoryCommand(t, "agent", "--listen", "unix:"+path)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	defer cmd.Process.Kill()
	if at, err := bufio.NewReader(out).ReadString('\n'); at != "unix:"+path+"\n" {
		t.Fatalf("agent prints %q, %v", at, err)
	}
	c := overSocket(path)
	first, _ := hold(t, c, "http://agent/", "first")
	second, _ := hold(t, c, "http://agent/", "second")
	cmd.Process.Kill()
	cmd.Wait()
	for _, lines := range []*bufio.Reader{first, second} {
		rest, err := io.ReadAll(lines)
		if err == nil || strings.Contains(string(rest), "held") {
			t.Errorf("the response goes on with %q, %v, want that it breaks off", rest, err)
		}
	}
	// The next agent takes the place of the socket that was left behind.
	l, err := listenUnix(t.Context(), path, 0o600)
	noErr(t, err)
	l.Close()
}

// The socket of an agent that is too busy to answer at once is not taken for one that was left behind.
func TestAgentAtABusySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	noErr(t, err)
	defer syscall.Close(fd)
	noErr(t, errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)))
	for { // until its queue is full
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer c.Close()
	}
	if _, err := listenUnix(t.Context(), path, 0o600); err == nil || !strings.Contains(err.Error(), "another process may serve there: ") {
		t.Errorf("listenUnix: %v", err)
	}
}

// Of agents that start at the same time at a socket that was left behind, one serves, and the others say why not.
func TestAgentsStartAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	noErr(t, err)
	left.SetUnlinkOnClose(false)
	left.Close()
	unlock, err := lockFolder(filepath.Dir(path)) // as an agent that has seen that the socket was left behind
	noErr(t, err)
	second := make(chan error, 1)
	go func() {
		_, err := listenUnix(t.Context(), path, 0o600)
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("the second does not wait for the first: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	noErr(t, os.Remove(path))
	l, err := net.Listen("unix", path)
	noErr(t, err)
	defer l.Close()
	unlock()
	if err := <-second; err == nil || err.Error() != "another process serves there" {
		t.Errorf("the second: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first can't be reached: %v", err)
	} else {
		c.Close()
	}
}

// A socket's path may be as long as the kernel allows, and it has its mode before its name.
func TestAgentAtALongPath(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	noErr(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, strings.Repeat("s", 107-len(dir)-1))
	defer syscall.Umask(syscall.Umask(0))
	l, err := (&net.ListenConfig{Control: modeBeforeName(0o640)}).Listen(t.Context(), "unix", path)
	noErr(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	l.Close()
	if l, err = listenUnix(t.Context(), path, 0o600); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err = listenUnix(t.Context(), path+"s", 0o600); err == nil || !strings.Contains(err.Error(), "the path has 108 bytes") {
		t.Errorf("at a path that is too long: %v", err)
	}
}

// Other machines need a token, which the operator gives.
func TestAgentToken(t *testing.T) {
	store := dsynctest.NewMemory()
	file := filepath.Join(t.TempDir(), "token")
	noErr(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	out, end := start(t.Context(), store, "agent", "--listen", ":0", "--token-file", file)
	at := ""
	for !strings.HasSuffix(at, "\n") {
		select {
		case got := <-end:
			t.Fatalf("agent ended: %+v", got)
		case <-time.After(time.Millisecond):
			at += out.take()
		}
	}
	at = strings.TrimSpace(at)
	for token, want := range map[string]int{"": 401, "0123456789abcdeX": 401, "0123456789abcdef": 200} {
		r, err := http.NewRequest("GET", at+"v1/health", nil)
		noErr(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(r)
		noErr(t, err)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("with the token %q: %s, want %d", token, answer.Status, want)
		}
	}
	terminate(t)
	if got := <-end; got != (result{}) {
		t.Errorf("agent: %+v, want a clean end", got)
	}
}

// A request whose header is too large is refused, and one whose header does not come is ended.
func TestAgentLimitsHeaders(t *testing.T) {
	server := newAgentServer(http.NotFoundHandler())
	if server.ReadHeaderTimeout == 0 || server.IdleTimeout == 0 || server.WriteTimeout != 0 {
		t.Errorf("the time-outs are %v, %v and %v", server.ReadHeaderTimeout, server.IdleTimeout, server.WriteTimeout)
	}
	l, err := net.Listen("tcp", "localhost:0")
	noErr(t, err)
	go server.Serve(l)
	defer server.Close()
	for size, want := range map[int]int{8 << 10: 404, 64 << 10: 431} {
		r, err := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
		noErr(t, err)
		r.Header.Set("X", strings.Repeat("x", size))
		answer, err := http.DefaultClient.Do(r)
		noErr(t, err)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("with a header of %d bytes: %s, want %d", size, answer.Status, want)
		}
	}
}

func TestAgentRefuses(t *testing.T) {
	dir := t.TempDir()
	short, plain := filepath.Join(dir, "short"), filepath.Join(dir, "plain")
	for _, name := range []string{short, plain} {
		noErr(t, os.WriteFile(name, []byte("secret\n"), 0o600))
	}
	for _, c := range []struct {
		flags  string
		status int
		want   string
	}{
		{"--listen 7474", exitUsage, `--listen is "7474"; it must be a host and a port, such as localhost:7474, or unix:PATH`},
		{"--listen :0", exitUsage, "--listen :0 can be reached from other machines; give a --token-file, or listen at localhost"},
		{"--listen 0.0.0.0:0", exitUsage, "--listen 0.0.0.0:0 can be reached from other machines"},
		{"--listen localhost:many", exitFailed, "can't serve at localhost:many: "},
		{"--listen unix:" + plain, exitFailed, "can't serve at unix:" + plain + ": there is a file that is not a socket"},
		{"--listen unix:" + dir + "/none/s", exitFailed, "can't serve at unix:"},
		{"--listen unix:" + dir + "/s --socket-mode rw", exitUsage, `--socket-mode is "rw"; it must be an octal mode such as 0600 or 0660`},
		{"--token-file " + short, exitUsage, "the token in " + short + " has 6 bytes; it must have at least 16"},
		{"--token-file " + dir + "/none", exitUsage, "the token can't be read: "},
		{"--listen localhost:0 --grace 1h", exitUsage, ""},
		{"more", exitUsage, "agent takes flags and nothing else"},
	} {
		got := command(t, dsynctest.NewMemory(), append([]string{"agent"}, strings.Fields(c.flags)...)...)
		if got.status != c.status || !strings.HasPrefix(got.err, "leasehold: "+c.want) || strings.Count(got.err, "\n") != 1 || got.out != "" {
			t.Errorf("%q: %+v, want status %d and %q", c.flags, got, c.status, c.want)
		}
	}
	if text, err := os.ReadFile(plain); string(text) != "secret\n" {
		t.Errorf("the file that is not a socket has %q, %v", text, err)
	}
}
