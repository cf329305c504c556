package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// logins counts the authentication messages that pass through the proxy from now on.
func logins(p *proxy.Proxy) *atomic.Int64 {
	n := new(atomic.Int64)
	p.Rule(func(c proxy.Command) proxy.Fate {
		if strings.HasPrefix(c.Name, "sasl") {
			n.Add(1)
		}
		return proxy.Pass
	})
	return n
}

// With a wrong password, opening a session fails at once, and the login is not retried.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		own := withAuth(t, s)
		for name, open := range openings {
			for _, user := range []string{"root:wrong@", "nobody:root@"} {
				t.Run(name+" as "+user, func(t *testing.T) {
					r := newRoom(t, own)
					p := r.proxy()
					tried := logins(p)
					session, err := open(context.Background(), r, as(user, p), r.short(patient))
					if err == nil {
						session.Close(context.Background())
					}
					if !errors.Is(err, dsync.ErrRefused) || !strings.Contains(err.Error(), "Authentication failed") || strings.Count(err.Error(), "\n") > 0 {
						t.Errorf("%v, want one error that names the cause", err)
					}
					if n := tried.Load(); n < 1 || n > 2 {
						t.Errorf("%d authentication messages, want those of one attempt", n)
					}
				})
			}
		}
	})
}

// While a session holds a lock, the user's password is changed and the session's connections are
// cut. The holder is notified in time, and the log gives the reason. After that a Lock returns
// an error at once, and nothing keeps retrying. With the right password the same session works
// again.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Binary: true, Standalone: true}, func(t *testing.T, s *server.Server) {
		own := withAuth(t, s)
		r := newRoom(t, own)
		p, admin := r.proxy(), own.Client(t).Database(r.DB)
		user := func(command, password string, more ...bson.E) {
			t.Helper()
			err := admin.RunCommand(t.Context(), append(bson.D{{Key: command, Value: "locker"}, {Key: "pwd", Value: password}}, more...)).Err()
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
		}
		user("createUser", "secret", bson.E{Key: "roles", Value: bson.A{"readWrite"}})
		var log warned
		o := r.short(4 * time.Second)
		o.Logger = log.logger()
		session := r.open(server.Connect(t, strings.Replace(p.URI(), "//", "//locker:secret@", 1)+"&authSource="+r.DB), o)
		m := session.Mutex("key")
		h := lock(t, m)
		lost := h.Lost()

		user("updateUser", "changed")
		p.Cut()
		p.Heal()
		cut := time.Now()
		lostInTime(t, lost, cut, o.TTL)
		if err := h.Release(t.Context()); !errors.Is(err, dsync.ErrLost) || !strings.Contains(err.Error(), "Authentication failed") {
			t.Errorf("Release: %v, want ErrLost and the cause", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := session.Mutex("other").LockContext(ctx); !errors.Is(err, dsync.ErrRefused) {
			t.Errorf("Lock with the old password: %v, want ErrRefused", err)
		}
		if n := strings.Count(log.String(), "op=Heartbeat"); n < 1 || n > 2 || !strings.Contains(log.String(), "Authentication failed") {
			t.Errorf("the log has %d lines about heartbeats, want one or two, with the reason:\n%s", n, log.String())
		}
		tried := logins(p)
		time.Sleep(o.TTL)
		if n := tried.Load(); n > 0 {
			t.Errorf("%d more authentication messages, though nobody requests a lock", n)
		}
		user("updateUser", "secret")
		release(t, lock(t, m))
	})
}

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
