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
	// atOnce is how many servers are measured at the same time: more would wait
	// for each other on this host, and widen each other's bounds.
	atOnce = 8

	// goodbye bounds how long a server's answer to the end of a session is waited for.
	goodbye = time.Second
)

// others measures, each over a client of its own, the servers beside own whose
// clocks can come to matter. A mongos does not know the others: they are those
// that the caller has listed. A standalone is alone.
func (c *check) others(ctx context.Context, own *measured) ([]*measured, []Unmeasured) {
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
	group.SetLimit(atOnce)
	for i, addr := range addrs {
		group.Go(func() error {
			found[i], errs[i] = c.direct(ctx, addr, own)
			return nil // one server's failure must not end the others' measuring
		})
	}
	_ = group.Wait()

	var all []*measured
	var missing []Unmeasured
	for i, addr := range addrs {
		switch {
		case errs[i] != nil:
			missing = append(missing, Unmeasured{Addr: addr, Err: errs[i]})
		case found[i].process() == own.process():
			own.addr = addr // a mongos again, which does not know its name
		default:
			found[i].addr = addr
			all = append(all, found[i])
		}
	}
	return all, missing
}

// direct measures the server at addr, which must be of the same deployment.
func (c *check) direct(ctx context.Context, addr string, own *measured) (*measured, error) {
	// The driver goes on trying to reach a server until ctx ends. One that refuses
	// the first connection is down: waiting for it would delay every process's start.
	whole := ctx
	ctx, down := context.WithCancelCause(ctx)
	defer down(nil)
	client, err := mongo.Connect(aimed(c.opt.Servers, addr).SetServerMonitor(&event.ServerMonitor{
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) { down(e.Failure) },
	}))
	if err != nil {
		return nil, err
	}
	m, err := c.measure(ctx, client)
	disconnect(client, err == nil)
	var step *StepError
	switch {
	case errors.As(err, &step):
		if !step.Host {
			step.Server = addr
		}
		return nil, err
	case err != nil && ctx.Err() != nil && whole.Err() == nil:
		return nil, context.Cause(ctx) // what the server said, not how the driver was interrupted
	case err != nil:
		return nil, err
	case m.SetName != own.SetName || m.router() != own.router():
		return nil, fmt.Errorf("not of this deployment: it says that its replica set is %q, not %q", m.SetName, own.SetName)
	}
	return m, nil
}

// disconnect ends client, and its session with the server if that answers. A
// deadline would make the driver wait in a busy loop for a connection on which an
// answer is still outstanding (v2.9.3, pool.close), hence the timer.
func disconnect(client *mongo.Client, answers bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !answers {
		cancel()
	}
	defer time.AfterFunc(goodbye, cancel).Stop()
	_ = client.Disconnect(ctx) // it was only read from: nothing to lose
}

// aimed returns options for a client that leads to the one server at addr, as o
// does to the whole deployment. A copy of o would keep its connection string,
// and with that of an SRV record the driver refuses to aim.
func aimed(o *options.ClientOptions, addr string) *options.ClientOptions {
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
