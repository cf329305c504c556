package mongo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
	leadermongo "github.com/leasehold-go/leasehold/leader/mongo"
)

// newClient returns a client of f that ends with the test.
func newClient(t *testing.T, f *fake) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(f.clientOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Errorf("Disconnect of the caller's client: %v", err)
		}
	})
	return client
}

// A way makes an election with Open or, if own is true, with Connect.
type way struct{ own bool }

func (w way) open(ctx context.Context, t *testing.T, f *fake, name string, opt *leadermongo.Options) (*leadermongo.Election, error) {
	t.Helper()
	if w.own {
		return leadermongo.Connect(ctx, f.clientOptions(), "app", name, opt)
	}
	return leadermongo.Open(ctx, newClient(t, f).Database("app"), name, opt)
}

// each runs test once with Open and once with Connect, in bubbles, which fail the test if a goroutine is left at the
// end.
func each(t *testing.T, test func(t *testing.T, w way)) {
	t.Run("Open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, way{own: false}) })
	})
	t.Run("Connect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, way{own: true}) })
	})
}

// Invalid arguments are refused at once, with an error that explains what is allowed, even if the
// server cannot be reached.
func TestNonsenseIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		for _, tt := range []struct {
			what, name string
			opt        *leadermongo.Options
			want       string
		}{
			{"no name", "", nil, "1 to 512 bytes"},
			{"a long name", strings.Repeat("x", 513), nil, "at most 512"},
			{"NUL in the name", "a\x00b", nil, "NUL"},
			{"a TTL", "e", &leadermongo.Options{Store: dsyncmongo.Options{Session: dsync.Options{TTL: 1}}}, "at least 1s"},
			{"a collection", "e", &leadermongo.Options{Store: dsyncmongo.Options{Collection: "a$b"}}, "must not contain"},
		} {
			start := time.Now()
			e, err := w.open(t.Context(), t, unreachable(), tt.name, tt.opt)
			if e != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, %v, want an error that says %q", tt.what, e, err, tt.want)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("%s: refused after %v, want at once", tt.what, d)
			}
		}
	})
}

func TestMissingArgumentsAreRefused(t *testing.T) {
	if e, err := leadermongo.Open(t.Context(), nil, "e", nil); e != nil || err == nil || !strings.Contains(err.Error(), "client.Database(") {
		t.Errorf("Open without a database: %v, %v", e, err)
	}
	if e, err := leadermongo.Connect(t.Context(), nil, "app", "e", nil); e != nil || err == nil || !strings.Contains(err.Error(), "ApplyURI") {
		t.Errorf("Connect without client options: %v, %v", e, err)
	}
	if e, err := leadermongo.Connect(t.Context(), options.Client().ApplyURI("mongodb://h/admin"), "", "e", nil); e != nil || err == nil || !strings.Contains(err.Error(), "the server's own") {
		t.Errorf("Connect with a database of the server's own: %v, %v", e, err)
	}
}

// An error about a malformed connection string contains no part of its password.
func TestErrorsHaveNoPasswords(t *testing.T) {
	for _, uri := range []string{"mongodb://me:se%zzcret@h/", "mongodb://me:s@ecret/x@h/", "mongodb://me:s@ecret:cret/x@h/", "mongodb://me:s@ecret:a:b/@h/"} {
		_, err := leadermongo.Connect(t.Context(), options.Client().ApplyURI(uri), "app", "e", nil)
		if err == nil || strings.Contains(err.Error(), "cret") || strings.Contains(err.Error(), "%zz") {
			t.Errorf("%s: %v, want an error without any part of the password", uri, err)
		}
	}
}

// Without a server, Open and Connect return an error when ctx ends.
func TestServerThatCannotBeReached(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		e, err := w.open(ctx, t, unreachable(), "e", nil)
		if e != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v, want %v", e, err, context.DeadlineExceeded)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("the error came after %v, want at most 5s", d)
		}
	})
}

// readOnly returns options that make Open and Connect send no command but hello.
func readOnly(value []byte) *leadermongo.Options {
	return &leadermongo.Options{
		Election: leader.Options{Value: value},
		Store:    dsyncmongo.Options{ReadOnly: true, Session: dsync.Options{Name: "pod-7"}},
	}
}

// If the election is refused, the session is closed, and so is the client that Connect made. The
// caller's client stays open.
func TestFailureClosesTheSession(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		f := newFake()
		const tooLong = 64<<10 + 1
		e, err := w.open(t.Context(), t, f, "e", readOnly(make([]byte, tooLong)))
		if e != nil || err == nil || !strings.Contains(err.Error(), "at most 65536") {
			t.Errorf("got %v, %v, want an error about the value", e, err)
		}
		synctest.Wait()
		if n := f.connections(); (n == 0) != w.own {
			t.Errorf("%d connections are open, want none: %t", n, w.own)
		}
	})
}

// The election has a session of its own with the given settings, and Close ends it.
func TestElectionHasASession(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		f := newFake()
		e, err := w.open(t.Context(), t, f, "e", readOnly(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.String(); got != `election "e": not leading` || e.Session().Options().Name != "pod-7" {
			t.Errorf("got %s on session %q, want an election that does not lead, on pod-7", got, e.Session().Options().Name)
		}
		if _, err := e.TryCampaign(t.Context()); !errors.Is(err, dsync.ErrRefused) {
			t.Errorf("TryCampaign on a read-only session: %v, want %v", err, dsync.ErrRefused)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := e.Campaign(t.Context()); !errors.Is(err, dsync.ErrClosed) {
			t.Errorf("Campaign after Close: %v, want %v", err, dsync.ErrClosed)
		}
		synctest.Wait()
		if n := f.connections(); (n == 0) != w.own {
			t.Errorf("%d connections are open after Close, want none: %t", n, w.own)
		}
		if n := f.sent.Load(); n != 0 {
			t.Errorf("%d commands were sent, want none but the driver's own", n)
		}
	})
}
