package mongo_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func ready() dsync.Event { return dsync.Event{Type: dsync.EventReady} }

func grant(key, claim string, token int64) dsync.Event {
	return dsync.Event{Type: dsync.EventGrant, Key: key, Claim: claim, Token: token}
}

// What was recorded from servers, one file for each version.
func TestWatchRecordedEvents(t *testing.T) {
	cases := []struct {
		file, session string
		passed        int // of the events, through the server's filter
		want          []dsync.Event
		ends          string
	}{
		{"5.0.0-rc4.jsonl", "S1", 5, []dsync.Event{
			ready(), grant("short", "S1.1", 1838353241261056), grant("long", "S1.10", 1838353241266176),
			grant("readers", "S1.30", 1838353241281536),
		}, "rename"},
		{"5.0.0-rc4.jsonl", "S2", 5, []dsync.Event{
			ready(), grant("short", "S2.1", 1838353241264128), grant("long", "S2.11", 1838353241278464),
			grant("readers", "S2.40", 1838353241291776), grant("readers", "S2.50", 1838353241292800),
		}, "rename"},
		{"5.0.0-rc4.jsonl", "S", 2, []dsync.Event{ready()}, "rename"},
		{"4.4.6.jsonl", "S1", 8, []dsync.Event{
			ready(), grant("short", "S1.1", 1838357901907968), grant("long", "S1.10", 1838357901918208),
			grant("readers", "S1.30", 1838357901949952),
			grant("readers", "S1.40", 1838357901960192), grant("readers", "S1.42", 1838357901962240),
			grant("leased", "S1.60", 1838357901962240), grant("long", "S1.12", 1838357901986816),
		}, "rename"},
		{"4.4.6.jsonl", "S2", 6, []dsync.Event{
			ready(), grant("short", "S2.1", 1838357901912064), grant("long", "S2.11", 1838357901945856),
			grant("readers", "S2.41", 1838357901961216), grant("readers", "S2.43", 1838357901963264),
			grant("leased", "S2.60", 1838357901983744),
		}, "rename"},
	}
	for _, tc := range cases {
		t.Run(tc.file+"/"+tc.session, func(t *testing.T) {
			events := recorded(t, tc.file)
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: events}
				got, err := f.watch(tc.session)
				if !slices.Equal(got, tc.want) {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
				if err == nil || !strings.Contains(err.Error(), tc.ends) {
					t.Errorf("the watch ended with %v, want it to name %s", err, tc.ends)
				}
				if f.sent != tc.passed {
					t.Errorf("%d events passed the filter, want %d", f.sent, tc.passed)
				}
			})
		})
	}
}

func recorded(t *testing.T, file string) []bson.Raw {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var events []bson.Raw
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var d bson.D
		if err := bson.UnmarshalExtJSON(lines.Bytes(), true, &d); err != nil {
			t.Fatal(err)
		}
		events = append(events, encode(t, d))
	}
	return events
}

func encode(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// change is an event on a key's record: as 4.4 has it, a "replace" of the whole
// record, or as later ones have it, an "update" with what changed.
func change(t *testing.T, operation, key string, g any) bson.Raw {
	ev := bson.D{
		e("_id", bson.D{e("_data", "82")}), e("operationType", operation),
		e("ns", bson.D{e("db", "app"), e("coll", "leasehold")}), e("documentKey", bson.D{e("_id", key)}),
	}
	record := bson.D{e("h", bson.A{}), e("q.3.a", "x.1")}
	if g != nil {
		record = append(record, e("g", g))
	}
	switch operation {
	case "delete":
		return encode(t, ev)
	case "update":
		return encode(t, append(ev, e("updateDescription", bson.D{e("updatedFields", record), e("removedFields", bson.A{})})))
	}
	return encode(t, append(ev, e("fullDocument", record)))
}

func TestWatchEventForms(t *testing.T) {
	for _, operation := range []string{"insert", "replace", "update"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{
					change(t, operation, "k/a", "s-1.1:1024,"),
					change(t, operation, "k/b", "other.1:1,s-1.2:2048,s-1.3:3072,other.2:2,"),
					change(t, operation, "k/c/d", "s-1x.7:5,s-1.18:4096,s-11.2:6,"),
					change(t, operation, "k/e", nil),
					change(t, operation, "k/f", "s-1x.1:1,xs-1.1:1,s-11.1:1,"),
					change(t, operation, "k/g", ""),
				}}
				got, err := f.watch("s-1")
				want := []dsync.Event{
					ready(), grant("a", "s-1.1", 1024), grant("b", "s-1.2", 2048), grant("b", "s-1.3", 3072),
					grant("c/d", "s-1.18", 4096),
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the watch ended with %v, want ctx's error", err)
				}
				if f.sent != 3 {
					t.Errorf("%d events passed the filter, want 3", f.sent)
				}
			})
		})
	}
}

// The grants of an election have three parts.
func TestWatchTerms(t *testing.T) {
	for _, operation := range []string{"insert", "replace", "update"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{
					change(t, operation, "k/a", "s-1.1:1024:1,"),
					change(t, operation, "k/b", "other.1:1:6,s-1.2:2048:7,s-1.3:3072:8,other.2:2:9,"),
					change(t, operation, "k/c", "s-1.4:4096,s-1.5:5120:9223372036854775807,"),
				}}
				got, err := f.watch("s-1")
				term := func(e dsync.Event, n int64) dsync.Event { e.Term = n; return e }
				want := []dsync.Event{
					ready(), term(grant("a", "s-1.1", 1024), 1), term(grant("b", "s-1.2", 2048), 7), term(grant("b", "s-1.3", 3072), 8),
					grant("c", "s-1.4", 4096), term(grant("c", "s-1.5", 5120), 1<<63-1),
				}
				if !slices.Equal(got, want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			})
		})
	}
	for _, g := range []string{"s.1:x,", "s.1:1:,", "s.1:1:x,", "s.1::1,", "s.1:1:2:3,"} {
		t.Run("broken "+g, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{change(t, "update", "k/a", g)}}
				if got, err := f.watch("s"); errors.Is(err, context.DeadlineExceeded) || err == nil {
					t.Errorf("got %+v, %v, want an error that says what is wrong", got, err)
				}
			})
		})
	}
}

func TestWatchKeys(t *testing.T) {
	changed := func(key string) dsync.Event { return dsync.Event{Type: dsync.EventChange, Key: key} }
	synctest.Test(t, func(t *testing.T) {
		f := &feed{t: t, events: []bson.Raw{
			change(t, "insert", "k/a", "other.1:1:1,"), // another's grant
			change(t, "update", "k/a", nil),
			change(t, "update", "k/b/c", "s.1:1024:2,"), // both
			change(t, "replace", "k/ab", nil),           // not watched
			change(t, "replace", "k/A", nil),
			change(t, "update", "s/a", nil), // a session
			change(t, "delete", "k/ab", nil),
			change(t, "delete", "k/a", nil),
			change(t, "insert", "k/d", "s.2:2048,"), // mine, not watched
		}}
		got, _ := f.watch("s", "a", "b/c", "a")
		lead := grant("b/c", "s.1", 1024)
		lead.Term = 2
		want := []dsync.Event{
			ready(), changed("a"), changed("a"), lead, changed("b/c"), changed("a"), grant("d", "s.2", 2048),
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if f.sent != 5 {
			t.Errorf("%d events passed the filter, want 5", f.sent)
		}
	})
}

func TestWatchEndsWithCollection(t *testing.T) {
	for _, operation := range []string{"drop", "rename", "dropDatabase", "invalidate"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{encode(t, bson.D{
					e("_id", bson.D{e("_data", "82")}), e("operationType", operation),
				})}}
				_, err := f.watch("s")
				if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("got %v, want an error of the watch's own", err)
				}
			})
		})
	}
}

func TestWatchUnsupported(t *testing.T) {
	cases := []struct {
		name string
		code int
		warn bool
	}{
		{"standalone", 40573, false},
		{"FerretDB", 115, false},
		{"not implemented", 238, false},
		{"unknown command", 59, false},
		{"unknown stage", 40324, false},
		{"DocumentDB", 304, false},
		{"no right", 13, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				opt := &dsyncmongo.Options{Options: dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
				s := newFake(t).store(opt, func(call) bson.D { return refusal(tc.code, "X") })
				start := time.Now()
				err := s.Watch(t.Context(), "s", nil, func(ev dsync.Event) { t.Errorf("event %+v", ev) })
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("got %v, want errors.ErrUnsupported", err)
				}
				if d := time.Since(start); d != 0 {
					t.Errorf("took %v, want it at once", d)
				}
				if got := strings.Contains(log.String(), "level=WARN"); got != tc.warn {
					t.Errorf("a warning was logged: %t, want %t: %s", got, tc.warn, &log)
				}
			})
		})
	}
}

func TestWatchOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(&dsyncmongo.Options{NoWatch: true}, null)
		if err := s.Watch(t.Context(), "s", nil, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want errors.ErrUnsupported", err)
		}
		if n := len(f.took()); n != 0 {
			t.Errorf("%d commands were sent, want none", n)
		}
	})
}

// An error that may pass is none of those that mean "poll from now on".
func TestWatchBreaks(t *testing.T) {
	answers := map[string]bson.D{
		"stepping down": refusal(11602, "InterruptedDueToReplStateChange"),
		"lost":          lost,
		"history lost":  refusal(286, "ChangeStreamHistoryLost"),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFake(t).store(nil, func(call) bson.D { return answer })
				err := s.Watch(t.Context(), "s", nil, func(ev dsync.Event) { t.Errorf("event %+v", ev) })
				if err == nil || errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("got %v, want an error that may pass", err)
				}
			})
		})
	}
}

// A connection that died without a word ends the watch in a quarter of a minute.
func TestWatchNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{t: t}
		s := newFake(t).store(nil, func(c call) bson.D {
			if c.name == "getMore" {
				return silent
			}
			return f.answer(c)
		})
		start, events := time.Now(), 0
		err := s.Watch(t.Context(), "s", nil, func(dsync.Event) { events++ })
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want an error that may pass", err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("noticed after %v, want 15 s", d)
		}
		if events != 1 {
			t.Errorf("%d events, want the first alone", events)
		}
	})
}

func TestWatchEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t).store(nil, (&feed{t: t}).answer)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		time.AfterFunc(7*time.Second, cancel)
		if err := s.Watch(ctx, "s", nil, func(dsync.Event) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("returned after %v, want at the cancel", d)
		}
	})
}
