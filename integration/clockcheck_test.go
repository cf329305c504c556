package integration_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A tally counts commands by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n == nil {
			c.n = make(map[string]int)
		}
		c.n[e.CommandName]++
	}}
}

// Any command other than hello and endSessions fails the test. The result is the number of hello
// commands.
func (c *tally) only(t testing.TB) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.n {
		if name != "hello" && name != "endSessions" {
			t.Errorf("the command %s was sent, want hello only", name)
		}
	}
	return c.n["hello"]
}

// busyLimit is a limit that is large enough for the check to succeed on a busy machine.
const busyLimit = 10 * time.Second

// agree fails the test unless the measured clock offset is 0 or skew, within the bound. A cluster's second router is
// ahead of this host by skew. A server without samples fails the test, too.
func agree(t testing.TB, s clockcheck.Server, skew time.Duration) {
	t.Helper()
	off := min(s.Offset.Abs(), (s.Offset - skew).Abs())
	if off > s.Bound || s.Samples == 0 {
		t.Errorf("%v: want an offset of 0 or %v, within the bound", s, skew)
	}
}

// L12: the clock of a server on this host agrees with the host's. The check sends only hello, at most 8 times.
func TestL12ClockCheck(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		var sent tally
		client := s.Client(t, options.Client().SetMonitor(sent.monitor()))
		begin := time.Now()
		r, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Limit: busyLimit})
		took := time.Since(begin)
		noErr(t, err)
		agree(t, r.Servers[0], s.Skew)
		n := sent.only(t)
		if strings.HasPrefix(s.Topology, "sharded") {
			n /= 4
		}
		if n > 8 {
			t.Errorf("%d hello commands were sent, want at most 8", n)
		}
		lab.Note(t, "%v, in %v", r, took.Round(time.Microsecond))

		// Measure many times, because a bound that is slightly too small fails only now and then.
		for range 50 {
			r, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Limit: busyLimit})
			noErr(t, err)
			agree(t, r.Servers[0], s.Skew)
		}
	})
}

// B07, L12: the server's clock is an hour ahead of or behind the host's.
func TestB07ClockCheckHourApart(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(ahead.String(), func(t *testing.T) {
				env, ok := server.FakeClock(ahead)
				if !ok {
					lab.Skip(t, s, server.NoFakeClock)
				}
				own := lab.Start(t, mongod.Spec{Members: 1, Env: env})
				client := own.Client(t)
				r, err := clockcheck.Check(t.Context(), client, nil)
				var off *clockcheck.Error
				if !errors.Is(err, clockcheck.ErrOffset) || !errors.As(err, &off) {
					t.Fatalf("got %v, want ErrOffset", err)
				}
				// libfaketime adds exactly an hour to the host's clock.
				if (r.Servers[0].Offset - ahead).Abs() > r.Servers[0].Bound {
					t.Errorf("%v, want %v", r, ahead)
				}
				if off.Offset != r.Servers[0].Offset || off.Bound != r.Servers[0].Bound || off.Limit != 500*time.Millisecond || off.Server == "" {
					t.Errorf("the error contains %+v, but the result is %v", off, r)
				}
				if _, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{NoLimit: true}); err != nil {
					t.Errorf("switched off: %v", err)
				}
				if _, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Limit: 2 * time.Hour}); err != nil {
					t.Errorf("with a limit of two hours: %v", err)
				}
			})
		}
	})
}

// Every member is measured separately. The result names a member that is down or frozen.
func TestClockCheckMembers(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3})
		var sent tally
		opt := options.Client().ApplyURI(own.URI).SetMonitor(sent.monitor())
		client := own.Client(t)
		r, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Servers: opt, Limit: busyLimit, Timeout: proc.Patience})
		noErr(t, err)
		for _, s := range r.Servers {
			agree(t, s, 0)
		}
		if len(r.Servers) != 3 || unmeasured(r) != "" || r.Spread > r.SpreadBound {
			t.Errorf("got %v, want three servers whose clocks agree", r)
		}
		if n := sent.only(t); n != 2*8 {
			t.Errorf("%d hello commands were sent to the two other members, want 16", n)
		}
		lab.Note(t, "%v", r)

		primary, err := own.Set().Primary(t.Context())
		noErr(t, err)
		i := slices.IndexFunc(own.Set().Members(), func(m *mongod.Member) bool { return m != primary })
		m := own.Set().Members()[i]
		for _, hurt := range []struct {
			name    string
			do      func() error
			timeout time.Duration
		}{
			{"frozen", m.Freeze, 3 * time.Second},
			{"down", func() error { m.Kill(); return nil }, time.Minute}, // the check must end long before this time-out
		} {
			noErr(t, hurt.do())
			eventually(t, hurt.name+": the other servers are measured", func() bool { // a busy machine may take longer than the time-out
				r, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Servers: opt, Limit: busyLimit, Timeout: hurt.timeout})
				if err != nil {
					t.Fatalf("%s: %v", hurt.name, err)
				}
				if len(r.Servers) != 3 || !strings.Contains(unmeasured(r), m.Addr) {
					t.Fatalf("%s: got %v, want %s not measured", hurt.name, r, m.Addr)
				}
				for _, s := range r.Servers {
					if s.Err == nil {
						agree(t, s, 0)
					} else if hurt.name == "down" && errors.Is(s.Err, context.DeadlineExceeded) {
						t.Fatalf("the check used up the time-out for a server that is down: %v", s.Err)
					}
				}
				return unmeasured(r) == m.Addr
			})
		}
	})
}

// unmeasured returns the addresses of the servers that were not measured.
func unmeasured(r clockcheck.Result) string {
	var all []string
	for _, s := range r.Servers {
		if s.Err != nil {
			all = append(all, s.Addr)
		}
	}
	return strings.Join(all, " ")
}

// On a server with access control, a user without any rights can measure the clocks, and so can an
// unauthenticated client.
func TestClockCheckNeedsNoRight(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 2, Auth: true})
		err := own.Client(t).Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "createUser", Value: "nobody"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 2}}}, // the user must exist on both members, because the check logs in to each
		}).Err()
		noErr(t, err)
		for _, user := range []string{"nobody:secret@", ""} {
			opt := options.Client().ApplyURI(own.Set().URIAs(user))
			client := server.Connect(t, own.Set().URIAs(user))
			r, err := clockcheck.Check(t.Context(), client, &clockcheck.Options{Servers: opt, Limit: busyLimit, Timeout: proc.Patience})
			if err != nil {
				t.Fatalf("as %q: %v", user, err)
			}
			if len(r.Servers) != 2 || unmeasured(r) != "" {
				t.Errorf("as %q: %v, want both members", user, r)
			}
			for _, s := range r.Servers {
				agree(t, s, 0)
			}
		}
		opt := options.Client().ApplyURI(own.Set().URIAs("nobody:wrong@"))
		r, err := clockcheck.Check(t.Context(), own.Client(t), &clockcheck.Options{Servers: opt, Limit: busyLimit, Timeout: 3 * time.Second})
		if err != nil || unmeasured(r) == "" {
			t.Errorf("with a wrong password for the others: %v, %v", r, err)
		}
	})
}

// If nothing listens on the address, the check fails soon and says that the connection was refused.
func TestClockCheckUnreachable(t *testing.T) {
	client := server.Connect(t, "mongodb://127.0.0.1:1/?directConnection=true&serverSelectionTimeoutMS=500")
	begin := time.Now()
	r, err := clockcheck.Check(t.Context(), client, nil)
	if err == nil || len(r.Servers) > 0 || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, %v; want an error that says refused", r, err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the check took %v, want at most 5 s", took)
	}
}

// L12: with Options.ClockCheck, Open fails if the clock is off or if the check is undecided.
func TestOpenChecksTheClock(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		db := r.Client(t).Database(r.DB)
		open := func(limit time.Duration) error {
			locks, err := dsyncmongo.Open(t.Context(), db, &dsyncmongo.Options{
				ClockCheck: &clockcheck.Options{Limit: limit},
				Session:    dsync.Options{Logger: r.logger()},
			})
			if err == nil {
				lock(t, locks.Mutex("k"))
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				locks.Close(ended)
			}
			return err
		}
		if err := open(busyLimit); err != nil {
			t.Errorf("Open with a correct clock: %v", err)
		}
		// A limit of 1 ns is too small for any clock, and for the check.
		if err := open(1); !errors.Is(err, clockcheck.ErrOffset) && !errors.Is(err, clockcheck.ErrUndecided) {
			t.Errorf("Open with a limit of 1ns: %v", err)
		}
	})
}

// Open logs a warning if the servers' clocks are farther apart than the margin.
func TestOpenWarnsOfTheSpread(t *testing.T) {
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		for _, c := range []struct {
			margin time.Duration
			warns  bool
		}{
			{0, false},              // the default, 500 ms
			{time.Nanosecond, true}, // no measurement can show that two clocks are that close
		} {
			var log bytes.Buffer
			locks, err := dsyncmongo.Open(t.Context(), r.Client(t).Database(r.DB), &dsyncmongo.Options{
				ClockCheck: &clockcheck.Options{Servers: options.Client().ApplyURI(r.URI), Limit: busyLimit},
				Session:    dsync.Options{Margin: c.margin, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			})
			noErr(t, err)
			if err := locks.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if got := strings.Contains(log.String(), "farther apart than the margin"); got != c.warns {
				t.Errorf("margin %v: warned %v, want %v:\n%s", c.margin, got, c.warns, log.String())
			}
		}
	})
}
