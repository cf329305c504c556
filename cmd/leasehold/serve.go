package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/internal/loopback"
	"github.com/spf13/cobra"
)

func newServe(a *app) *cobra.Command {
	var listen string
	var allowBreak bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a page that shows the locks of the whole fleet",
		Long: `Serve the page of package dsynchttp at an address: the holders and waiters of keys,
the live processes, and the recent holders of each key that were seen while the page was
open. The page updates by itself, and returns JSON for ?format=json.
serve prints the page's URL and serves until SIGINT or SIGTERM, and then exits with 0.

Besides the page it serves two paths for programs:

  /healthz  "ok", or 503 and the reason if the store does not answer within 2 s. Use it as a
            readiness probe; as a liveness probe it would restart serve when the server is down
  /metrics  gauges of the whole store, for Prometheus. A program can export metrics of its own
            locks, such as losses and waiting times, with the module otel

  leasehold_fleet_up                           1, or 0 and no other metrics if the store
                                               could not be read
  leasehold_fleet_keys{kind,state}             keys that are held, lapsed, free or done
  leasehold_fleet_waiters{kind}                requests waiting for a key
  leasehold_fleet_oldest_hold_seconds{kind}    age of the oldest hold
  leasehold_fleet_members{version}             live processes
  leasehold_fleet_deadlocks                    possible deadlocks
  leasehold_fleet_truncated                    1 if there are more than 10000 keys: only the
                                               first 10000, in byte order, are counted
  leasehold_fleet_read_duration_seconds        how long this reading took

serve writes nothing to the store and needs only the right to find, except with
--allow-break: that adds a button to the page which does what leasehold break does.

Anyone who can reach the address sees the names of all keys and hosts, and with
--allow-break can break locks. There is no login: by default only processes on this
machine reach the page. To serve others, put a proxy in front that authenticates them.
At a loopback address, serve answers only requests to localhost or to that address, so
foreign web pages can't reach it through a name of their own.`,
		Example: `  leasehold serve
  leasehold serve --listen localhost:9000 --allow-break`,
		Args: arguments(0, 0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usagef("--listen is %q; it must be a host and a port, such as localhost:8080 or :8080", listen)
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error { return a.serve(ctx, listen, allowBreak) })
		},
	}
	c.Flags().StringVar(&listen, "listen", "localhost:8080", "address to serve at; port 0: any free port")
	c.Flags().BoolVar(&allowBreak, "allow-break", false, "let anyone who can reach the page break locks")
	return c
}

// serve serves the page until ctx ends.
func (a *app) serve(ctx context.Context, listen string, allowBreak bool) error {
	var opt dsynchttp.Options
	if a.store == nil {
		t, err := a.resolve()
		if err != nil {
			return err
		}
		opt.Store = t.String()
	}
	if !allowBreak {
		return a.view(ctx, func(ctx context.Context, v *view) error { return a.servePage(ctx, listen, v.session, &opt) })
	}
	s, err := a.connect(ctx, dsync.Options{})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))                // this session holds nothing
	opt.Authorize = func(*http.Request) error { return nil } // everyone may break locks
	return a.servePage(ctx, listen, s, &opt)
}

// shutdownTime bounds how long serve waits for running requests when it ends.
const shutdownTime = 5 * time.Second

// servePage serves the session's page, /healthz and /metrics until ctx ends.
func (a *app) servePage(ctx context.Context, listen string, s *dsync.Session, opt *dsynchttp.Options) error {
	page := dsynchttp.New(s, opt)
	defer page.Close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("can't serve at %s: %w", listen, err)}
	}
	server := newPageServer(withProbes(page, admin.New(s)), page, l.Addr())
	fmt.Fprintln(a.stdout, pageURL(listen, l.Addr()))
	return serveUntil(ctx, server, l, func(context.Context) {})
}

// serveUntil serves until ctx ends. Then it calls end, while the server goes on, and shuts the server down.
func serveUntil(ctx context.Context, server *http.Server, l net.Listener, end func(context.Context)) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx = context.WithoutCancel(ctx)
	end(ctx)
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newPageServer returns a server that serves h at the given address, and closes page when it
// shuts down. Its time-outs disconnect slow clients but don't end streams of events, because a
// stream sets a new write deadline for each event. http.TimeoutHandler would end streams.
func newPageServer(h http.Handler, page *dsynchttp.Handler, at net.Addr) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	if loopback.Is(at.String()) {
		s.Handler = onlyLoopback(h)
	}
	s.RegisterOnShutdown(func() { page.Close() }) // otherwise Shutdown would wait for the page's streams
	return s
}

// onlyLoopback refuses requests whose Host is not this machine's own: see [loopback.Is].
func onlyLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Is(r.Host) {
			http.Error(w, "this page is only for requests to localhost: see leasehold serve --help", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// pageURL returns the page's URL, with the host from --listen and the actual port.
func pageURL(listen string, at net.Addr) string {
	host, _, _ := net.SplitHostPort(listen)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(at.String())
	return "http://" + net.JoinHostPort(host, port) + "/"
}
