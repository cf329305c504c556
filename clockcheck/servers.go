package clockcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

const (
	// maxConcurrent is how many servers are measured at the same time, at most. More servers would compete for this
	// host's CPU and widen each other's bounds.
	maxConcurrent = 8

	// disconnectTimeout bounds how long disconnect waits for the server to end the session.
	disconnectTimeout = time.Second
)

// others measures the other servers whose clocks can matter, each over a client of its own. A
// replica set lists its members. A mongos does not know the other mongos, so the caller must list
// them. A standalone has no others.
func (c *check) others(ctx context.Context, own *measured) ([]*measured, []Server) {
	var addrs []string
	switch {
	case own.SetName != "":
		addrs = own.Hosts
	case own.router():
		addrs = c.opt.Servers.Hosts
	case len(c.opt.Servers.Hosts) == 1:
		own.addr = c.opt.Servers.Hosts[0]
	}
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool { return addr == own.Me })

	found, errs := make([]*measured, len(addrs)), make([]error, len(addrs))
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for i, addr := range addrs {
		group.Go(func() error {
			found[i], errs[i] = c.direct(ctx, addr, own)
			return nil // a server that fails must not stop the measurement of the others
		})
	}
	_ = group.Wait()

	var all []*measured
	var missing []Server
	for i, addr := range addrs {
		switch {
		case errs[i] != nil:
			missing = append(missing, Server{Addr: addr, Err: errs[i]})
		case found[i].process() == own.process():
			own.addr = addr // the mongos that was measured first; its name is known only now, because a mongos does not report it
		default:
			found[i].addr = addr
			all = append(all, found[i])
		}
	}
	return all, missing
}

// direct measures the server at addr, which must belong to the same deployment.
func (c *check) direct(ctx context.Context, addr string, own *measured) (*measured, error) {
	// The driver would keep trying to reach a server until ctx ends. A server that
	// refuses the first connection is down, and waiting for it would delay the start of
	// every process that checks its clock.
	parent := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	client, err := mongo.Connect(directOptions(c.opt.Servers, addr).SetServerMonitor(&event.ServerMonitor{
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) { fail(e.Failure) },
	}))
	if err != nil {
		return nil, err
	}
	m, err := c.measure(ctx, client)
	disconnect(client, err == nil)
	var step *Error
	switch {
	case errors.As(err, &step):
		if !step.Host {
			step.Server = addr
		}
		return nil, err
	case err != nil && ctx.Err() != nil && parent.Err() == nil:
		return nil, context.Cause(ctx) // the reason why the heartbeat failed; err only says that the driver was interrupted
	case err != nil:
		return nil, err
	case m.SetName != own.SetName || m.router() != own.router():
		return nil, fmt.Errorf("not of this deployment: its replica set is %q (mongos: %t), want %q (mongos: %t)", m.SetName, m.router(), own.SetName, own.router())
	}
	return m, nil
}

// disconnect closes client. If the server answers, disconnect also ends the client's session there. It uses a timer
// instead of a context with a deadline: with a deadline, the driver busy-waits for any connection that still expects an
// answer (v2.9.3, pool.close).
func disconnect(client *mongo.Client, answers bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !answers {
		cancel()
	}
	defer time.AfterFunc(disconnectTimeout, cancel).Stop()
	_ = client.Disconnect(ctx) // the client has written nothing that could be lost
}

// directOptions returns options for a client that talks only to the server at addr, with the connection settings of o.
// It does not copy o, because the copy would keep o's connection string. If that is a mongodb+srv:// string, the driver
// refuses SetDirect.
func directOptions(o *options.ClientOptions, addr string) *options.ClientOptions {
	a := options.Client().SetHosts([]string{addr}).SetDirect(true).
		SetMaxPoolSize(1).SetServerMonitoringMode(options.ServerMonitoringModePoll)
	a.AppName, a.Auth, a.DriverInfo, a.ServerAPIOptions = o.AppName, o.Auth, o.DriverInfo, o.ServerAPIOptions
	a.Dialer, a.ConnectTimeout, a.Timeout = o.Dialer, o.ConnectTimeout, o.Timeout
	a.TLSConfig, a.HTTPClient = o.TLSConfig, o.HTTPClient
	a.DisableOCSPEndpointCheck = o.DisableOCSPEndpointCheck
	a.DisableCertificateRevocationCheck = o.DisableCertificateRevocationCheck
	a.Monitor, a.PoolMonitor, a.LoggerOptions = o.Monitor, o.PoolMonitor, o.LoggerOptions
	return a
}
