package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/spf13/cobra"
)

// newServe returns the serve command.
func newServe(a *app) *cobra.Command {
	var listen string
	var allowBreak bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a page that shows the locks of the whole fleet",
		Long: `Serve the page of package dsynchttp at an address: the holders and waiters of keys,
the processes that are alive, and the last holders of each key, as far as they were seen
while the page was open. The page updates by itself, and returns JSON for ?format=json.
serve prints the page's URL and serves until SIGINT or SIGTERM, and then exits with 0.

Beside the page it serves two paths for programs:

  /healthz  "ok", or 503 and why: whether the store answers within 2 s. It suits a readiness
            probe; as a liveness probe it would have serve restarted when the server is down
  /metrics  for Prometheus, gauges of the whole store. Programs export what they know of
            themselves, such as losses and how long they wait, with the module otel

  leasehold_fleet_up                           1, or 0 if the store could not be read, and
                                               then there is nothing else
  leasehold_fleet_keys{kind,state}             keys that are held, lapsed, free or done
  leasehold_fleet_waiters{kind}                requests that wait
  leasehold_fleet_oldest_hold_seconds{kind}    how long the oldest hold lasts by now
  leasehold_fleet_members{version}             processes that are alive
  leasehold_fleet_deadlocks                    possible deadlocks
  leasehold_fleet_truncated                    1 if there are more than 10000 keys: those
                                               after them, in byte order, are not counted
  leasehold_fleet_read_duration_seconds        how long this reading took

Nothing is written to the store, and the right to find is enough, except with
--allow-break: it adds a button to the page which does what leasehold break does.

Anyone who can reach the address sees the names of all keys and hosts, and with
--allow-break can break locks. There is no login: by default only processes on this
machine reach the page. To serve others, put a proxy in front that authenticates them.
At a loopback address, requests must be made to localhost or that address, so that web
pages elsewhere can't reach it through a name of their own.`,
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
	c.Flags().StringVar(&listen, "listen", "localhost:8080", "the address to serve at; port 0: any that is free")
	c.Flags().BoolVar(&allowBreak, "allow-break", false, "let anyone who reaches the page break locks")
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
	defer s.Close(context.WithoutCancel(ctx))                // it holds nothing
	opt.Authorize = func(*http.Request) error { return nil } // everyone may
	return a.servePage(ctx, listen, s, &opt)
}

// shutdownTime bounds how long running requests may take when serve ends.
const shutdownTime = 5 * time.Second

// servePage serves the page of a session until ctx ends, with what programs read.
func (a *app) servePage(ctx context.Context, listen string, s *dsync.Session, opt *dsynchttp.Options) error {
	page := dsynchttp.New(s, opt)
	defer page.Close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("can't serve at %s: %w", listen, err)}
	}
	server := newPageServer(withProbes(page, admin.New(s)), page, l.Addr())
	fmt.Fprintln(a.stdout, pageURL(listen, l.Addr()))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newPageServer returns a server of h at an address, which closes the page when it is shut down. Slow clients can't keep its
// connections. The time-outs don't end streams of events, which set a write deadline of
// their own for each event; http.TimeoutHandler would.
func newPageServer(h http.Handler, page *dsynchttp.Handler, at net.Addr) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	if isLoopback(at.String()) {
		s.Handler = onlyLoopback(h)
	}
	s.RegisterOnShutdown(func() { page.Close() }) // Shutdown would wait for its streams
	return s
}

// onlyLoopback refuses requests whose Host is not this machine's own. A web page from
// elsewhere can make a browser here send requests to a name that it has pointed to a
// loopback address (DNS rebinding). To the browser both are the same origin.
func onlyLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this page is served to localhost only: see leasehold serve --help", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopback reports whether host, with or without a port, is localhost or a loopback
// address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// pageURL returns the address of the page for people: the host that they gave, and the
// port that was chosen.
func pageURL(listen string, at net.Addr) string {
	host, _, _ := net.SplitHostPort(listen)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(at.String())
	return "http://" + net.JoinHostPort(host, port) + "/"
}
