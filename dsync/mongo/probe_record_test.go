package mongo_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A memory answers like honest, but also remembers the records of passed probes.
type memory struct {
	passed map[string]bool // by collection and _id
}

func newMemory() *memory { return &memory{passed: make(map[string]bool)} }

func (m *memory) answer(c call) bson.D {
	id := probeRecord(c)
	if id == "" {
		return honest(c)
	}
	id = c.cmd.Lookup(c.name).StringValue() + " " + id
	for _, path := range [][]string{{"update"}, {"updates", "0", "u"}} {
		if passed, ok := c.cmd.Lookup(append(path, "0", "$set", "passed")...).BooleanOK(); ok {
			m.passed[id] = passed
		}
	}
	if m.passed[id] {
		return ok(e("n", 1), e("value", bson.D{e("passed", true)}))
	}
	return ok(e("n", 1), e("value", bson.D{}))
}

// A second Open probes again only if something that matters to the probe has changed.
func TestOpenProbesOnce(t *testing.T) {
	cases := []struct {
		name   string
		hello  func(bson.D) bson.D // reply to the second Open's hello; nil: the same as to the first's
		opt    *dsyncmongo.Options // of the second Open
		before func(*memory)       // called before the second Open
		probes bool                // the second Open probes
		always bool                // the third Open probes, too
	}{
		{name: "the same server"},
		{name: "an upgraded server", hello: func(d bson.D) bson.D {
			return append(without("maxWireVersion")(d), e("maxWireVersion", 21))
		}, probes: true},
		{name: "not known to be MongoDB", hello: without("topologyVersion"), probes: true, always: true},
		{name: "another collection", opt: &dsyncmongo.Options{Collection: "locks"}, probes: true},
		{name: "the collection was dropped", before: func(m *memory) { clear(m.passed) }, probes: true},
		{name: "an earlier version of the probe passed", before: func(m *memory) {
			m.passed = map[string]bool{"leasehold x/probe/0/9": true}
		}, probes: true},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f, m := newFake(t), newMemory()
			client, hello := f.client(), f.hello
			open := func(which string, opt *dsyncmongo.Options, probes bool) {
				f.script(m.answer)
				if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), opt); err != nil {
					t.Fatal(err)
				}
				if got := len(f.took()) > 1; got != probes {
					t.Errorf("the %s Open probed: %t, want %t", which, got, probes)
				}
			}
			open("first", nil, true)
			if tc.before != nil {
				tc.before(m)
			}
			if tc.hello != nil {
				f.say(tc.hello)
			}
			open("second", tc.opt, tc.probes)
			open("third", tc.opt, tc.always)
			f.say(func(bson.D) bson.D { return hello })
			open("last, which is like the first,", nil, false)
		})
	}
}

// Open sends two commands to a server that has passed the probe.
func TestOpenIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan string, 100)
		f, m := newFake(t), newMemory()
		client := f.client(options.Client().SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) { sent <- e.CommandName },
		}))
		f.script(m.answer)
		for i, want := range []int{1 + len(stepsOfAProbe), 2, 2} {
			s, err := dsyncmongo.Open(t.Context(), client.Database("app"), nil)
			noErr(t, err)
			if got := len(sent); got != want {
				t.Errorf("Open %d sent %d commands, want %d", i+1, got, want)
			}
			if first, second := <-sent, <-sent; first != "hello" || second != "findAndModify" {
				t.Errorf("Open %d sent %s and %s first, want hello and findAndModify", i+1, first, second)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for len(sent) > 0 {
				<-sent
			}
		}
	})
}

// Open sends as many commands as the documentation says.
func TestDocsCountTheProbe(t *testing.T) {
	first := 1 + len(stepsOfAProbe) // hello is not one of the steps
	probe := first - len([]string{"hello", "findAndModify of the record", "find", "update that sets passed"})
	together := len(stepsOfAProbe) - len(elsewhere)
	if first-2 != 59 || first-2-together != 47 {
		t.Errorf("the first Open sends %d commands more than two, without those together %d; the comment of Open says fifty-nine and forty-seven", first-2, first-2-together)
	}
	for name, want := range map[string][]string{
		"operations.md": {fmt.Sprintf("takes %d small commands, or %d on a sharded cluster,", first, first-together), fmt.Sprintf("at least %d each time", 1+probe-together)},
		"protocol.md":   {fmt.Sprintf("the probe follows, %d commands, or %d on a sharded cluster", probe, probe-together)},
	} {
		text, err := os.ReadFile("../../docs/" + name)
		noErr(t, err)
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), w) {
				t.Errorf("docs/%s does not say %q", name, w)
			}
		}
	}
}

// Open writes even if a record says that the server has passed the probe. So Open fails if the user may not write.
func TestOpenOfAPassedServerStillWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFake(t), newMemory()
		client := f.client()
		f.script(m.answer)
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); err != nil {
			t.Fatal(err)
		}
		f.script(m.answer)
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); err != nil {
			t.Fatal(err)
		}
		c := f.took()[0]
		if w, number := c.cmd.Lookup("writeConcern", "w").AsInt64OK(); !c.cmd.Lookup("upsert").Boolean() || !number || w != 1 {
			t.Errorf("it sent %v, want an upsert that waits only for the primary", c.cmd)
		}
		f.script(func(call) bson.D { return refusal(13, "Unauthorized") })
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "Unauthorized") {
			t.Errorf("got %v, want the server's error", err)
		}
	})
}

// Every Open refuses a capped collection before it tries the store's commands.
func TestOpenRefusesACappedCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := newFake(t), newMemory()
		client := f.client()
		f.script(func(c call) bson.D {
			if c.name == "find" {
				return ok(e("cursor", bson.D{e("id", int64(1)), e("ns", "app.leasehold"), e("firstBatch", bson.A{})}))
			}
			return m.answer(c)
		})
		for i := range 2 {
			_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
			if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "leasehold is capped") || !strings.Contains(err.Error(), "drop it") {
				t.Errorf("got %v, want an error that says that the collection is capped, and what to do", err)
			}
			if got := len(f.took()); got != 2*(i+1) {
				t.Errorf("sent %d commands by the end of Open %d, want two for each", got, i+1)
			}
		}
	})
}

// If a fail-over interrupts the probe, Open probes again from the beginning, and records that the server has passed
// only after a complete probe.
func TestOpenRepeatsAnInterruptedProbe(t *testing.T) {
	n := len(stepsOfAProbe)
	for name, interrupted := range interruptions {
		if name == "overloaded" || name == "shedding" {
			continue // the driver itself repeats a command after these errors
		}
		for _, nth := range []int{1, 2, n / 2, n - 1, n} {
			inBubble(t, fmt.Sprint(name, " at command ", nth), func(t *testing.T) {
				f, m := newFake(t), newMemory()
				client := f.client()
				f.script(func(c call) bson.D {
					if len(f.took()) == nth {
						return interrupted(c)
					}
					return m.answer(c)
				})
				s, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
				noErr(t, err)
				var got []string
				calls, remembered := f.took(), 0
				names := shapes(t, s, f)
				for _, c := range calls {
					got = append(got, stepOf(c, names))
					if got[len(got)-1] == "update passed" {
						remembered++
					}
				}
				if len(got) < n || !slices.Equal(got[len(got)-n:], stepsOfAProbe) {
					t.Errorf("at the end it sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(stepsOfAProbe, "\n"))
				}
				if want := 1 + nth/n; remembered != want {
					t.Errorf("the passed probe was recorded %d times, want %d", remembered, want)
				}
			})
		}
	}
}

// The probe's commands must not change unless probeVersion is raised.
func TestProbeVersion(t *testing.T) {
	const version, want = "12", "37afed5c18240a0a"
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(honest)
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); err != nil {
			t.Fatal(err)
		}
		sent := f.took()
		if got := strings.Split(probeRecord(sent[0]), "/")[2]; got != version {
			t.Errorf("probeVersion is %s, want %s", got, version)
		}
		hash := sha256.New()
		random := regexp.MustCompile(`"p/[^/"]*/`) // new in each probe
		for _, c := range sent[1 : len(sent)-1] {
			fmt.Fprintln(hash, random.ReplaceAllString(asSent(t, c.cmd), `"p/`))
		}
		if got := fmt.Sprintf("%.8x", hash.Sum(nil)); got != want {
			t.Errorf("the probe's commands have changed: raise probeVersion, so that servers are probed again, and write the new version and the hash %q into this test", got)
		}
	})
}
