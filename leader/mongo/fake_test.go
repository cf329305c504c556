package mongo_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/internal/mongofake"
)

// A fake is a server that refuses all commands but hello and the driver's own, which is enough for a read-only store.
type fake struct {
	*mongofake.Server
	down bool         // it cannot be reached
	sent atomic.Int32 // the number of refused commands
}

func newFake() *fake {
	f := &fake{}
	hello := mongofake.Hello()
	f.Server = mongofake.New(func(name string, _ bson.Raw) bson.D {
		switch name {
		case "hello", "isMaster", "ismaster":
			return mongofake.OK(hello[:len(hello):len(hello)]...)
		case "ping", "endSessions":
			return mongofake.OK()
		}
		f.sent.Add(1)
		return mongofake.Refusal(59, "CommandNotFound")
	})
	return f
}

func unreachable() *fake {
	f := newFake()
	f.down = true
	return f
}

// connections returns the number of open connections.
func (f *fake) connections() int {
	_, open := f.Connections()
	return open
}

func (f *fake) clientOptions() *options.ClientOptions { return f.ClientOptions().SetDialer(f) }

func (f *fake) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if f.down {
		return nil, errors.New("the fake is down")
	}
	return f.Server.DialContext(ctx, network, addr)
}
