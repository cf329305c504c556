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
		{"5.0.0-rc4.jsonl", "S1", 7, []dsync.Event{ // two of a "rev" that was a list then
			ready(), grant("short", "S1.1", 1838353241261056), grant("long", "S1.10", 1838353241266176),
			grant("readers", "S1.30", 1838353241281536),
		}, "rename"},
		{"5.0.0-rc4.jsonl", "S2", 5, []dsync.Event{
			ready(), grant("short", "S2.1", 1838353241264128), grant("long", "S2.11", 1838353241278464),
			grant("readers", "S2.40", 1838353241291776), grant("readers", "S2.50", 1838353241292800),
		}, "rename"},
		{"5.0.0-rc4.jsonl", "S", 2, []dsync.Event{ready()}, "rename"},
		{"4.4.6.jsonl", "S1", 17, []dsync.Event{ // 4.4 tells of a yield and a revocation with each write
			ready(), grant("short", "S1.1", 1838373750166528), grant("long", "S1.10", 1838373750180864),
			grant("readers", "S1.30", 1838373750232064),
			grant("readers", "S1.40", 1838373750247424), grant("readers", "S1.42", 1838373750249472),
			grant("leased", "S1.60", 1838373750256640),
			grant("yielding", "S1.80", 1838373750280192), yield("yielding", "S1.80"), yield("yielding", "S1.80"),
			grant("kept", "S1.90", 1838373750300672),
			grant("sealed", "S1.91", 1838373750313984), wake("sealed", "S1.92"),
			grant("sized", "S1.93", 1838373750330368), revoke("sized", "S1.93"), revoke("sized", "S1.93"),
			grant("long", "S1.12", 1838373750351872),
		}, "rename"},
		{"4.4.6.jsonl", "S2", 11, []dsync.Event{
			ready(), grant("short", "S2.1", 1838373750172672), grant("long", "S2.11", 1838373750224896),
			grant("readers", "S2.41", 1838373750248448), grant("readers", "S2.43", 1838373750250496),
			wake("leased", "S2.60"), grant("leased", "S2.60", 1838373750275072),
			grant("yielding", "S2.80", 1838373750345728), wake("kept", "S2.90"), wake("sealed", "S2.91"),
			grant("sized", "S2.93", 1838373750337536),
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

// change is an event on a record: as 4.4 has it, a "replace" of the whole
// record, or as later ones have it, an "update" with what changed.
func change(t *testing.T, operation, id string, g any, more ...bson.E) bson.Raw {
	ev := bson.D{
		e("_id", bson.D{e("_data", "82")}), e("operationType", operation),
		e("ns", bson.D{e("db", "app"), e("coll", "leasehold")}), e("documentKey", bson.D{e("_id", id)}),
	}
	record := append(bson.D{e("h", bson.A{}), e("q.3.a", "x.1")}, more...)
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

func wake(key, claim string) dsync.Event {
	return dsync.Event{Type: dsync.EventWake, Key: key, Claim: claim}
}

func yield(key, claim string) dsync.Event {
	return dsync.Event{Type: dsync.EventYield, Key: key, Claim: claim}
}

func revoke(key, claim string) dsync.Event {
	return dsync.Event{Type: dsync.EventRevoke, Key: key, Claim: claim}
}

// Up to 4.4 every event has the whole record, from 5.0 on what has changed.
func TestWatchWakes(t *testing.T) {
	for _, operation := range []string{"insert", "replace", "update"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{
					change(t, operation, "k/a", "s.1:0,"),
					change(t, operation, "k/b", "other.1:0,s.2:0,s.3:4096,"),
					change(t, operation, "k/c", ":s.9:1795283651838,other.5:0,"), // s.9 wakes another
					change(t, operation, "k/d", "other.1:7,:other.9:1795283651838,s.4:0,"),
				}}
				got, err := f.watch("s")
				want := []dsync.Event{
					ready(), wake("a", "s.1"), wake("b", "s.2"), grant("b", "s.3", 4096), wake("d", "s.4"),
				}
				if !slices.Equal(got, want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
				if f.sent != 3 {
					t.Errorf("%d events passed the filter, want 3", f.sent)
				}
			})
		})
	}
}

func TestWatchYields(t *testing.T) {
	for _, operation := range []string{"insert", "replace", "update"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := func(list string) bson.E { return e("r", list) }
				f := &feed{t: t, events: []bson.Raw{
					change(t, operation, "k/a", nil, r("s-1.1,")),
					change(t, operation, "k/b", "other.2:1024,", r("other.1,s-1.2,s-1.30,other.2,")),
					change(t, operation, "k/c", nil, r("xs-1.1,s-11.1,s-1x.1,")),
					change(t, operation, "k/d", "s-1.4:1024,", r("s-1.4,")),
					change(t, operation, "k/e", nil, r("")),
					change(t, operation, "s/s-1", nil, r("s-1.1,")),
				}}
				got, err := f.watch("s-1")
				want := []dsync.Event{
					ready(), yield("a", "s-1.1"), yield("b", "s-1.2"), yield("b", "s-1.30"),
					grant("d", "s-1.4", 1024), yield("d", "s-1.4"),
				}
				if !slices.Equal(got, want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
				if f.sent != 4 {
					t.Errorf("%d events passed the filter, want 4", f.sent)
				}
			})
		})
	}
}

func TestWatchRevokes(t *testing.T) {
	const evil = "a,b:c/\u00e9\x00"
	rev := func(list string) bson.E { return e("rev", list) }
	for _, operation := range []string{"insert", "replace", "update"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{
					change(t, operation, "s/s", nil), // a heartbeat
					change(t, operation, "s/s", nil, rev("s.1:YQ,")),
					change(t, operation, "s/s", nil, rev("s.1:YQ,s.2:YSxiOmMvw6kA,")),
					change(t, operation, "s/other", nil, rev("s.1:YQ,")),
					change(t, operation, "s/s.", nil, rev("s.1:YQ,")),
					change(t, operation, "k/s", nil, rev("s.1:YQ,")),
				}}
				got, err := f.watch("s")
				want := []dsync.Event{ready(), revoke("a", "s.1"), revoke("a", "s.1"), revoke(evil, "s.2")}
				if !slices.Equal(got, want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
				if f.sent != 2 {
					t.Errorf("%d events passed the filter, want 2", f.sent)
				}
			})
		})
	}
	for _, list := range []string{"s.1,", "s.1:%,", ","} {
		t.Run("broken "+list, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{t: t, events: []bson.Raw{change(t, "update", "s/s", nil, rev(list))}}
				_, err := f.watch("s")
				if broken := !errors.Is(err, context.DeadlineExceeded); broken != (list != ",") {
					t.Errorf("the watch ended with %v", err)
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
