package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// openings are the two ways to open a session. ctx bounds the first contact with the server.
var openings = map[string]func(ctx context.Context, r *room, o *options.ClientOptions, so dsync.Options) (*dsync.Session, error){
	"Open": func(ctx context.Context, r *room, o *options.ClientOptions, so dsync.Options) (*dsync.Session, error) {
		client := server.Connect(r.t, o.GetURI(), o)
		return dsyncmongo.Open(ctx, client.Database(r.DB), &dsyncmongo.Options{Session: so})
	},
	"Connect": func(ctx context.Context, r *room, o *options.ClientOptions, so dsync.Options) (*dsync.Session, error) {
		return dsyncmongo.Connect(ctx, o, r.DB, &dsyncmongo.Options{Session: so})
	},
}

// as(user, p) returns options for a client that connects through the proxy p. user is "user:password@" or "".
func as(user string, p *proxy.Proxy) *options.ClientOptions {
	return options.Client().ApplyURI(strings.Replace(p.URI(), "//", "//"+user, 1))
}

// With TLS and SCRAM, a handshake takes longer than the command timeout at a TTL of four seconds. Even so, Open and
// Connect work, a holder keeps its hold, and a waiter is granted the key next. A session survives reconnects if its TTL
// allows for two handshakes: the monitor's, and then a command's. With a shorter TTL the session may lose its hold, but
// continues to work.
func TestTLS(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		own := withAuth(t, s)
		for name, open := range openings {
			for _, ttl := range []time.Duration{4 * time.Second, 8 * time.Second} {
				t.Run(fmt.Sprintf("%s, TTL %v", name, ttl), func(t *testing.T) {
					r := newRoom(t, own)
					p, trust := proxy.NewTLS(t, own.Primary(t), 800*time.Millisecond)
					enter := func() *stepped {
						x, o := new(stepped), r.short(ttl)
						o.HeartbeatInterval = time.Second
						o.Hooks, o.Logger = x.hooks(), r.logger()
						var err error
						if x.Session, err = open(t.Context(), r, as("root:root@", p).SetTLSConfig(trust), o); err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { x.Close(context.Background()) })
						return x
					}
					holder, waiter := enter(), enter()
					beats := func() {
						t.Helper()
						holder.forget()
						eventually(t, "two heartbeats", func() bool { return holder.count().beats >= 2 })
					}
					m := holder.Mutex("key")
					h := lock(t, m)
					ch := locking(t.Context(), waiter.Mutex("key"))
					store := r.store()
					eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })
					beats()
					for range 3 {
						if closed(h.Lost()) {
							t.Fatal("the hold was lost")
						}
						beat := p.Once(proxy.LoseRequest, heartbeats(holder.ID()))
						select {
						case <-beat: // the worst moment: the session has had no acknowledgement for a whole heartbeat interval
						case <-time.After(20 * time.Second):
							t.Fatal("no heartbeat was sent within 20 s")
						}
						p.Cut()
						p.Heal()
						if ttl == 4*time.Second {
							break
						}
						beats()
					}
					if err := h.Release(t.Context()); err != nil && ttl > 4*time.Second {
						t.Error(err)
					}
					release(t, granted(t, ch).h)
					release(t, lock(t, m))
				})
			}
		}
	})
}

// If a handshake takes longer than the client allows, opening a session fails with one error. If
// the client allows more time, it succeeds.
func TestHandshakeTooSlow(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p, trust := proxy.NewTLS(t, s.Primary(t), 1500*time.Millisecond) // Connect allows only a second for the handshake
		connect := func(o *options.ClientOptions, within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			session, err := openings["Connect"](ctx, r, o.SetTLSConfig(trust), r.short(10*time.Second))
			if err == nil {
				lock(t, session.Mutex("key"))
				session.Close(context.Background())
			}
			return err
		}
		const want = "if TCP, TLS and authentication may take longer than 1s, raise SetConnectTimeout"
		if err := connect(as("", p), 5*time.Second); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("Connect: %v, want %q in it", err, want)
		}
		if err := connect(as("", p).SetConnectTimeout(10*time.Second), proc.Patience); err != nil {
			t.Error(err)
		}
	})
}
