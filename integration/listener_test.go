package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Whatever happens to the primary on which a waiter listens, a notice tells the waiter that it was granted the key. An
// open cursor does not show that its member is still the primary. If the member has stepped down, the cursor stays open
// without an error. The same is true of a member that is cut off from the others, although it gets no new notices.
// TestListenFollowsThePrimaryAtOnce in dsync/mongo checks, in a bubble, how soon the listener follows the primary.
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
				// Close the connections; otherwise requests that are under way would still be answered.
				out := net.Proxy(m.Addr).Outgoing()
				out.Cut()
				out.Heal()
			}
		},
	}
	// The ways to open the waiter's session.
	sessions := map[string]func(*room, dsync.Options, *monitor) *dsync.Session{
		"Open":    func(r *room, o dsync.Options, mon *monitor) *dsync.Session { return r.session(o, mon.client()) },
		"Connect": (*room).connect,
	}
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		for name, harm := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				net := proxy.NewNetwork(t)
				own := startBehind(t, net, mongod.Spec{
					Members: 3, ElectionTimeout: 2 * time.Second,
					Args: []string{"--networkMessageCompressors", "disabled"}, // so that the proxy can read the commands
				})
				r := newRoom(t, own)
				opt := dsync.Options{TTL: 2 * time.Minute, PollInterval: 10 * time.Minute, Retention: -1}
				holding := r.session(opt)
				held, waiting := make(map[string]*dsync.Hold), make(map[string]<-chan grant)
				for how, open := range sessions {
					mon := newMonitor(r.DB)
					held[how] = lock(t, warm(t, holding, how))
					waiting[how] = r.listening(t, open(r, opt, mon).Mutex(how), mon)
				}

				old := primary(t, own.Set())
				harm(t, own, net)
				eventually(t, "there is another primary", func() bool { return primary(t, own.Set()) != old })
				for _, h := range held {
					release(t, h) // this may have to wait for a request that went to the former primary
				}
				begin := time.Now()
				for how, ch := range waiting {
					g := granted(t, ch) // thanks to the notice; a poll would come later
					d := g.at.Sub(begin).Round(time.Millisecond)
					lab.Note(t, "%s, %s: granted %v after Release", name, how, d)
					release(t, g.h)
				}
			})
		}
	})
}

// connect is like session, but opens the session with Connect, which makes the client.
func (r *room) connect(o dsync.Options, mon *monitor) *dsync.Session {
	r.t.Helper()
	o.Logger = r.logger()
	client := options.MergeClientOptions(options.Client().ApplyURI(r.URI), mon.client())
	s, err := dsyncmongo.Connect(r.opening(), client, r.DB, &dsyncmongo.Options{Session: o})
	if err != nil {
		r.t.Fatalf("Connect: %v", err)
	}
	r.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ended)
	})
	return s
}

// ofMembers reports whether members of a set send this command to each other.
func ofMembers(c proxy.Command) bool {
	db, _ := c.Body.Lookup("$db").StringValueOK()
	return strings.HasPrefix(c.Name, "replSet") || db == "local"
}
