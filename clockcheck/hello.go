package clockcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A hello is what a server says of itself. The command needs no privilege and is
// part of the Stable API.
type hello struct {
	SetName string   `bson:"setName"`
	Me      string   `bson:"me"`
	Hosts   []string `bson:"hosts"` // those that can become primary: passives and arbiters are listed elsewhere
	Msg     string   `bson:"msg"`
	Version struct {
		Process bson.ObjectID `bson:"processId"`
	} `bson:"topologyVersion"`
	Connection int64 `bson:"connectionId"`
}

func (h *hello) router() bool { return h.Msg == "isdbgrid" }

// process tells one server from another behind the same client; samples of two
// must never be intersected. Where a server has no process id (it is not MongoDB
// 4.4 or later), one connection leads to one server.
func (h *hello) process() string {
	if h.Version.Process.IsZero() {
		return fmt.Sprint(h.Me, "#", h.Connection)
	}
	return h.Me + "/" + h.Version.Process.Hex()
}

// farthest keeps differences within a time.Duration: no clock that is farther off
// can be measured, only be wrong.
const farthest = 100 * 365 * 24 * time.Hour

// ask samples the server that the client leads to.
func (c *check) ask(ctx context.Context, client *mongo.Client) (sample, hello, error) {
	var s sample
	var h hello
	s.sent = c.host.before()
	raw, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	s.got = c.host.after()
	if err != nil {
		return s, h, err
	}
	if err := bson.Unmarshal(raw, &h); err != nil {
		return s, h, fmt.Errorf("decode the reply: %w", err)
	}
	now, ok := raw.Lookup("localTime").TimeOK()
	if !ok {
		return s, h, errors.New("the server does not tell its localTime")
	}
	s.server = now.Sub(c.host.base)
	if s.server.Abs() > farthest {
		return s, h, fmt.Errorf("the server's clock says %v and the host's %v: one of them was never set",
			now.UTC().Format(time.RFC3339), c.host.base.UTC().Format(time.RFC3339))
	}
	return s, h, nil
}
