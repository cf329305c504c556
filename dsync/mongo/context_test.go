package mongo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// B33: if the caller's ctx carries a transaction, the lock's commands must not join it.
func TestStoreIgnoresContextValues(t *testing.T) {
	for _, m := range methods {
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			s := f.storeOn(client, nil, null)
			sess := transaction(t, client)
			_ = m.call(mongo.NewSessionContext(t.Context(), sess), s)
			f.wantNone(sess)
		})
	}
}

// The same holds for all commands of Open.
func TestOpenIgnoresContextValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.script(honest)
		client := f.client()
		sess := transaction(t, client)
		ctx, cancel := context.WithTimeout(mongo.NewSessionContext(t.Context(), sess), time.Minute)
		defer cancel()
		s, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
		noErr(t, err)
		f.wantNone(sess)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// transaction returns a driver session in which a transaction has begun.
func transaction(t *testing.T, client *mongo.Client) *mongo.Session {
	t.Helper()
	sess, err := client.StartSession()
	noErr(t, err)
	t.Cleanup(func() { sess.EndSession(context.Background()) })
	noErr(t, sess.StartTransaction())
	return sess
}

// wantNone checks that commands were sent, and that none of them belongs to sess or its transaction.
func (f *fake) wantNone(sess *mongo.Session) {
	f.t.Helper()
	for _, c := range f.took() {
		for _, field := range []string{"txnNumber", "autocommit", "startTransaction"} {
			if _, err := c.cmd.LookupErr(field); err == nil {
				f.t.Errorf("%s is part of the caller's transaction: %v", c.name, c.cmd)
			}
		}
		if got := c.cmd.Lookup("lsid").String(); got == sess.ID().String() {
			f.t.Errorf("%s has the caller's session", c.name)
		}
	}
	if len(f.took()) == 0 {
		f.t.Error("no command was sent")
	}
}

// A call returns when ctx's deadline passes, or when ctx is cancelled.
func TestStoreContextEnds(t *testing.T) {
	for _, m := range methods {
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, func(call) bson.D { return silent })

			ctx, cancel := context.WithTimeout(t.Context(), attempt)
			defer cancel()
			start := time.Now()
			if err := m.call(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("at the deadline: got %v, want context.DeadlineExceeded", err)
			}
			if got := time.Since(start); got > attempt {
				t.Errorf("returned after %v, want at most %v", got, attempt)
			}

			ctx, cancel = context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, cancel)
			start = time.Now()
			if err := m.call(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: got %v, want context.Canceled", err)
			}
			if got := time.Since(start); got != time.Second {
				t.Errorf("returned after %v, want %v", got, time.Second)
			}
		})
	}
}

// A call on a connection that died silently returns even if ctx has no deadline.
func TestStoreWithoutDeadline(t *testing.T) {
	for _, m := range methods {
		inBubble(t, m.name, func(t *testing.T) {
			s := newFake(t).store(nil, func(call) bson.D { return silent })
			start := time.Now()
			if err := m.call(t.Context(), s); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want context.DeadlineExceeded", err)
			}
			if got := time.Since(start); got != 30*time.Second {
				t.Errorf("returned after %v, want 30s", got)
			}
		})
	}
}

func TestStoreLateReplyKeepsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, func(call) bson.D {
			time.Sleep(attempt + 100*time.Millisecond)
			return ok(e("value", bson.D{e("at", time.Now())}))
		})
		before, _ := f.Connections()
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		if _, err := s.Heartbeat(ctx, "s", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(time.Second)
		f.script(func(call) bson.D { return ok(e("value", bson.D{e("at", time.Now())})) })
		if _, err := s.Heartbeat(t.Context(), "s", nil); err != nil {
			t.Error(err)
		}
		if after, _ := f.Connections(); after != before {
			t.Errorf("%d connections were made, want %d: the driver should have read the late reply and kept the connection", after, before)
		}
	})
}
