package mongo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// noticesReply is the reply of a find or a getMore with so many notices.
func noticesReply(id int64, batch string, notices int) bson.D {
	docs := bson.A{}
	for range notices {
		docs = append(docs, bson.D{e("to", "s")})
	}
	return ok(e("cursor", bson.D{e("id", id), e("ns", "app.leasehold.notices"), e(batch, docs)}))
}

// names are those of the calls.
func names(calls []call) (names []string) {
	for _, c := range calls {
		names = append(names, c.name)
	}
	return names
}

// Where there is no way to notify, Listen says so at once, and warns only of a missing
// right, which it names.
func TestListenUnsupported(t *testing.T) {
	cases := []struct {
		name     string
		opt      dsyncmongo.Options
		portable bool
		code     int
		warn     bool
	}{
		{name: "NoWatch", opt: dsyncmongo.Options{NoWatch: true}},
		{name: "ReadOnly", opt: dsyncmongo.Options{ReadOnly: true}},
		{name: "not MongoDB", portable: true},
		{name: "not capped", code: 2},
		{name: "Stable API, strict", code: 323},
		{name: "no right", code: 13, warn: true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				tc.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
				f := newFake(t)
				if tc.portable {
					f.hello = without("topologyVersion")(f.hello)
				}
				s := f.store(&tc.opt, func(call) bson.D { return refusal(tc.code, "X") })
				start := time.Now()
				err := s.Listen(t.Context(), "s", func() { t.Error("called") })
				if !errors.Is(err, errors.ErrUnsupported) || time.Since(start) != 0 {
					t.Errorf("got %v after %v, want errors.ErrUnsupported at once", err, time.Since(start))
				}
				if n := len(f.took()); tc.code == 0 && n > 0 {
					t.Errorf("%d commands were sent, want none", n)
				}
				if got := strings.Contains(log.String(), "convertToCapped"); got != tc.warn {
					t.Errorf("the right was named: %t, want %t: %s", got, tc.warn, &log)
				}
			})
		})
	}
}

// A collection that is missing or empty is made, and given a notice for nobody: nothing
// can be tailed without. Each batch of notices is one call. A cursor that has grown old is
// replaced, and one that the server ends ends the Listen.
func TestListenTails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		began := time.Now()
		gets := 0
		s := f.store(nil, func(c call) bson.D {
			switch c.name {
			case "find":
				if !slices.Contains(names(f.took()), "create") {
					return noticesReply(0, "firstBatch", 0)
				}
				if tailable, _ := c.cmd.Lookup("tailable").BooleanOK(); !tailable {
					t.Errorf("the cursor is not tailable: %v", c.cmd)
				}
				return noticesReply(7, "firstBatch", 0)
			case "create":
				if capped, _ := c.cmd.Lookup("capped").BooleanOK(); !capped {
					t.Errorf("the collection is not capped: %v", c.cmd)
				}
				return refusal(48, "NamespaceExists") // somebody else made it
			case "insert":
				return ok(e("n", 1))
			case "getMore":
				gets++
				switch {
				case gets == 2:
					return noticesReply(7, "nextBatch", 3)
				case time.Since(began) > 2*time.Minute:
					return noticesReply(0, "nextBatch", 0)
				}
				time.Sleep(5 * time.Second)
				return noticesReply(7, "nextBatch", 0)
			}
			return ok()
		})
		calls := 0
		err := s.Listen(t.Context(), "s", func() { calls++ })
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("the Listen ended with %v, want that its cursor ended", err)
		}
		if calls != 2 {
			t.Errorf("%d calls, want one at the beginning and one for three notices", calls)
		}
		finds := 0
		for _, c := range f.took() {
			if c.name == "find" {
				finds++
			}
		}
		if finds < 3 {
			t.Errorf("%d cursors in two minutes, want a new one each minute", finds-1)
		}
	})
}

// Notify inserts one notice, into a capped collection; to who can't listen it sends none.
func TestNotifyInserts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, func(c call) bson.D {
			if c.name == "create" {
				return refusal(48, "NamespaceExists")
			}
			return ok(e("n", 1))
		})
		if err := s.Notify(t.Context(), "s"); err != nil {
			t.Errorf("Notify: %v", err)
		}
		if got, want := names(f.took()), []string{"create", "insert"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		if to, _ := f.took()[1].cmd.Lookup("documents", "0", "to").StringValueOK(); to != "s" {
			t.Errorf("the notice is for %q, want s", to)
		}
		f.script(func(call) bson.D { return refusal(13, "Unauthorized") })
		if err := s.Notify(t.Context(), "s"); !errors.Is(err, dsync.ErrRefused) {
			t.Errorf("Notify without the right: %v, want ErrRefused", err)
		}
		if got := names(f.took()); !slices.Equal(got, []string{"create"}) {
			t.Errorf("sent %v, want no insert, which would make a collection that is not capped", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(&dsyncmongo.Options{NoWatch: true}, null)
		if err := s.Notify(context.Background(), "s"); err != nil || len(f.took()) > 0 {
			t.Errorf("Notify with NoWatch: %v, and %d commands", err, len(f.took()))
		}
	})
}
