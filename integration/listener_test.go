package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// finding is how long a listener may go on at a former primary: it asks who the primary
// is whenever it has heard nothing for 10 s.
const finding = 25 * time.Second

// Whatever happens to the primary on which a waiter listens, the waiter learns of its grant within
// seconds. A cursor stays, without an error, on a member that has stepped down, and on one that
// is cut off from the other members and gets no new notices any more.
func TestListenerFindsThePrimary(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, own *server.Server, net *proxy.Network){
		"step-down": func(t *testing.T, own *server.Server, _ *proxy.Network) {
			if err := own.Set().StepDown(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"primary killed": func(t *testing.T, own *server.Server, _ *proxy.Network) {
			primary(t, own.Set()).Kill()
		},
		"primary cut off from the others": func(t *testing.T, own *server.Server, net *proxy.Network) {
			old := primary(t, own.Set())
			net.Proxy(old.Addr).Rule(always(proxy.LoseRequest, ofMembers))
			net.Proxy(old.Addr).Outgoing().Hang()
			for _, m := range own.Set().Members() {
				if m == old {
					continue
				}
				// What it has been asked for it goes on to answer: ends those connections.
				out := net.Proxy(m.Addr).Outgoing()
				out.Cut()
				out.Heal()
			}
		},
	}
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		for name, harm := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				net := proxy.NewNetwork(t)
				own := startBehind(t, net, mongod.Spec{
					Members: 3, ElectionTimeout: 2 * time.Second,
					Args: []string{"--networkMessageCompressors", "disabled"}, // or nobody could tell commands
				})
				r := newRoom(t, own)
				opt := dsync.Options{TTL: 2 * time.Minute, PollInterval: 2 * time.Minute, Retention: -1}
				mon := newMonitor(r.DB)
				holder := warm(t, r.session(opt), "key")
				lock(t, holder, 20*time.Second)
				ch := r.listening(t, r.session(opt, mon.client()).Mutex("key"), mon)

				old := primary(t, own.Set())
				harm(t, own, net)
				eventually(t, 60*time.Second, "there is another primary", func() bool { return primary(t, own.Set()) != old })
				mon.reset()
				unlock(t, holder)
				begin := time.Now()
				g := granted(t, ch, finding)
				lab.Note(t, "%s: granted %v after Unlock", name, g.at.Sub(begin).Round(time.Millisecond))
				unlock(t, g.m)
			})
		}
	})
}

// ofMembers are the commands that members of a set send to each other.
func ofMembers(c proxy.Command) bool {
	db, _ := c.Body.Lookup("$db").StringValueOK()
	return strings.HasPrefix(c.Name, "replSet") || db == "local"
}
