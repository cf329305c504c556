package integration_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
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
