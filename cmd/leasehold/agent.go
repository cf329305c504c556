package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/internal/loopback"
	"github.com/spf13/cobra"
)

// agentFlags are the flags of the agent command.
type agentFlags struct {
	listen, mode, tokenFile string
	grace                   time.Duration
}

func newAgent(a *app) *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent",
		Short: "Hold locks for programs in any language, over HTTP",
		Long: `Serve package dsync/agent: a lock is an open response. A program on this machine, in any
language, requests a lock, holds it for as long as it keeps the request open, and
releases it by closing the connection. If the program dies, the kernel does that.

  GET /v1/locks/KEY?wait=30s       hold a lock; ?mode=shared, ?of=5 as run --shared, run -n 5
  GET /v1/once/KEY                 run something once; GET /v1/periodic/KEY?tick=TIME
  GET /v1/elections/NAME           be a candidate, for any number of terms
  GET /v1/elections/NAME/leader    who leads; NAME/leaders: again after each change
  POST /v1/holds/ID/done           release, and know that it is released
  GET /v1/status/KEY               the holders and waiters
  GET /v1/health                   200, or 503: a readiness probe
  GET /v1/openapi.json             all of it, as an OpenAPI description

The response is a stream of lines of JSON. {"held":…} has the fencing token; {"lost":…} or
the end of the response means that the lock is lost, and {"left_ms":…}, a sign of life,
how long to rely on it if no other line comes. After lost, the program has --grace to stop
before anyone else can have the key. The documentation of package dsync/agent has all
rules; examples/languages has clients for Python, Node and the shell.

By default only programs on this machine can use the agent: it serves localhost, or a Unix
socket that only its user can open (--socket-mode). Web pages in a browser can't: their
requests are refused. Anyone who can use it can take all locks. To serve other machines,
give a --token-file, and put a proxy for TLS in front that neither buffers responses nor
keeps them open without the client. An agent of its own on each machine, or in each pod,
is the safer choice.

agent prints where it serves and serves until SIGINT or SIGTERM. Then all clients are told
that their locks are lost, and it exits with 0 when they have stopped, or after the grace.
A second signal ends it at once; if it is killed, its clients' keys become free after
the TTL.`,
		Example: `  leasehold agent
  leasehold agent --listen unix:/run/leasehold/agent.sock --socket-mode 0660
  leasehold agent --listen :7474 --token-file /etc/leasehold/token
  curl -sN 'localhost:7474/v1/locks/invoices?wait=30s'`,
		Args: arguments(0, 0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilSignal(cmd.Context(), func(ctx context.Context) error { return a.agent(ctx, f) })
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "localhost:7474", "address to serve at (port 0: any free port), or unix:PATH")
	c.Flags().StringVar(&f.mode, "socket-mode", "0600", "who may open the Unix socket, as for chmod")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the bearer token that each request must have, at least 16 bytes")
	c.Flags().DurationVar(&f.grace, "grace", 0, "time that programs have to stop when a lock is lost (default TTL/10)")
	return c
}

// agent serves the agent until ctx ends.
func (a *app) agent(ctx context.Context, f agentFlags) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	l, at, err := f.open(ctx, opt.Token != "")
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := a.connect(ctx, dsync.Options{Grace: f.grace, Hooks: &dsync.Hooks{
		SessionLost: func(_ string, cause error) {
			a.say(fmt.Errorf("the session was lost, and with it what its clients held: %w", cause))
		},
	}})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, at)
	server := newAgentServer(agent.New(s, opt))
	err = serveUntil(ctx, server, l, func(ctx context.Context) {
		if err := s.Close(ctx); err != nil {
			a.say(err)
		}
	})
	return errors.Join(err, s.Close(ctx)) // if the server failed: else it is closed already
}

// newAgentServer returns a server for h. Its time-outs end slow requests. No WriteTimeout: it would end open responses,
// which have a deadline for each write.
func newAgentServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// options reads the token.
func (f *agentFlags) options() (*agent.Options, error) {
	if f.tokenFile == "" {
		return &agent.Options{}, nil
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return nil, usagef("the token can't be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 16 {
		return nil, usagef("the token in %s has %d bytes; it must have at least 16", f.tokenFile, len(token))
	}
	return &agent.Options{Token: token}, nil
}

// open returns the listener, and where it serves, for people.
func (f *agentFlags) open(ctx context.Context, token bool) (net.Listener, string, error) {
	if path, ok := strings.CutPrefix(f.listen, "unix:"); ok {
		mode, err := strconv.ParseUint(f.mode, 8, 32)
		if err != nil || mode > 0o777 {
			return nil, "", usagef("--socket-mode is %q; it must be an octal mode such as 0600 or 0660", f.mode)
		}
		l, err := listenUnix(ctx, path, os.FileMode(mode))
		if err != nil {
			return nil, "", &failure{exitFailed, fmt.Errorf("can't serve at %s: %w", f.listen, err)}
		}
		return l, f.listen, nil
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return nil, "", usagef("--listen is %q; it must be a host and a port, such as localhost:7474, or unix:PATH", f.listen)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, "", &failure{exitFailed, fmt.Errorf("can't serve at %s: %w", f.listen, err)}
	}
	if !token && !loopback.Is(l.Addr().String()) {
		l.Close()
		return nil, "", usagef("--listen %s can be reached from other machines; give a --token-file, or listen at localhost", f.listen)
	}
	return l, pageURL(f.listen, l.Addr()), nil
}

// listenUnix listens at a Unix socket with the given mode. A socket that was left behind is replaced. Meanwhile the folder
// is locked, so that of two agents that start at the same time one serves, and the other says why it does not.
func listenUnix(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch c, err := net.Dial("unix", path); {
	case err == nil:
		c.Close()
		return nil, errors.New("another process serves there")
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EAGAIN): // another user's, or its queue is full
		return nil, fmt.Errorf("another process may serve there: %w", err)
	case errors.Is(err, syscall.EINVAL):
		return nil, fmt.Errorf("%w; the path has %d bytes, and may have about 100", err, len(path))
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, errors.New("there is a file that is not a socket")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := (&net.ListenConfig{Control: modeBeforeName(mode)}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil { // what the umask has taken
		l.Close()
		return nil, err
	}
	return l, nil
}
