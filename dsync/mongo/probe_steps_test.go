package mongo_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// stepsOfAProbe lists, in order, the commands that the first Open sends after hello, as stepOf names them. The probe
// can find only defects that show in these commands.
var stepsOfAProbe = []string{
	"findAndModify passed",
	"find",
	"insert",
	`acquire for a tick after the expired dead, $dead key, $mine.1 for $mine, weight 2 of 9`,
	`resize key`,
	`keep key one.1`,
	`release alone key one.1`,
	`release key one.1`,
	`publish key two.1`,
	`acquire for a tick at the head key, $mine.2 for $mine, weight 2 of 9`,
	`seal key two.1`,
	`acquire for a tick after the expired later key, $mine.3 for $mine, weight 2 of 9`,
	`release alone key three.1`,
	"short acquire short $short.0", "short acquire short $short.1", "short acquire short $short.2", "short acquire short $short.3",
	"short release short $short.3", "short release short $short.2", "short release short $short.2",
	"short acquire short $short.4",
	`acquire short, $short.5 for $mine, weight 1 of 1`,
	"short release short $short.4",
	"short hand-over short $short.5", "short hand-over short $short.4", "short hand-over short $short.6", "short hand-over short $short.6",
	"short hand-over short $short.5",
	"short keep short $short.6", "aggregate short", "short keep short $short.6",
	`try short, $short.7 for $mine, weight 1 of 1`,
	`acquire short, $short.8 for $mine, weight 1 of 1`,
	`succeed short $short.6`, `succeed short $short.6`,
	"short acquire new $short.3", "short acquire new $short.4",
	`acquire new, $short.5 for $mine, weight 1 of 1`,
	"short acquire many $many.0", "short acquire many $many.1", "short acquire many $many.2", "acquires together many $many.2",
	"releases together many $many.2", "releases together many $many.1", "releases together many $many.1",
	"acquires together many $many.3", "acquires together many $many.3", "acquires together many $many.4",
	`acquire many, $many.5 for $mine, weight 1 of 1`,
	"releases together many $many.4",
	"aggregate key",
	"findAndModify living", "findAndModify living", // the second must be refused
	"findAndModify living", "findAndModify living", "findAndModify living",
	"findAndModify unknown", "findAndModify unknown",
	"delete",
	"update passed",
}

// elsewhere lists the commands of a probe of a sharded cluster, where each short command goes alone.
var elsewhere = slices.DeleteFunc(slices.Clone(stepsOfAProbe), func(step string) bool { return strings.Contains(step, " many") })

// shortClaim matches the claims of the probe's short commands.
var shortClaim = regexp.MustCompile(`\$(short|many)\.\d`)

// shapeOf returns c's pipeline without its first stage, which has the call's arguments.
func shapeOf(c call) string {
	for _, path := range [][]string{{"update"}, {"updates", "0", "u"}} {
		if stages, ok := c.cmd.Lookup(path...).ArrayOK(); ok {
			values := must(stages.Values())
			return fmt.Sprint(values[1:])
		}
	}
	return ""
}

// shapes returns the names of the pipelines by their shapes. It learns these shapes by calling a store's methods.
func shapes(t *testing.T, s driver.Store, f *fake) map[string]string {
	t.Helper()
	c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindSemaphore, Weight: 1, Limit: 2}
	ctx, names := t.Context(), make(map[string]string)
	tick := c
	tick.Tick = 1
	for name, do := range map[string]func(){
		"acquire for a tick":                   func() { storecmd.Acquire(ctx, s, tick, true, nil, time.Now()) },
		"acquire for a tick after the expired": func() { storecmd.Acquire(ctx, s, tick, true, []string{"t"}, time.Now()) },
		"acquire for a tick at the head": func() {
			c := tick
			c.First = true
			storecmd.Acquire(ctx, s, c, true, nil, time.Now())
		},
		"acquire":                   func() { storecmd.Acquire(ctx, s, c, true, nil, time.Now()) },
		"acquire after the expired": func() { storecmd.Acquire(ctx, s, c, true, []string{"t"}, time.Now()) },
		"acquire at the head": func() {
			c := c
			c.First = true
			storecmd.Acquire(ctx, s, c, true, nil, time.Now())
		},
		"try":     func() { storecmd.Acquire(ctx, s, c, false, nil, time.Now()) },
		"release": func() { storecmd.Release(ctx, s, c, driver.Release{}) },
		"keep":    func() { storecmd.Release(ctx, s, c, driver.Release{Keep: time.Hour}) },
		"succeed": func() { storecmd.Release(ctx, s, c, driver.Release{Successor: "t.1"}) },
		"seal":    func() { storecmd.Release(ctx, s, c, driver.Release{Seal: 1}) },
		"publish": func() { storecmd.Publish(ctx, s, c, 1, nil) },
		"resize":  func() { storecmd.Resize(ctx, s, "k", c.Kind, 1, 2) },
	} {
		f.script(null)
		do()
		shape := shapeOf(f.took()[0])
		if other, ok := names[shape]; ok {
			t.Fatalf("%s and %s are the same command", name, other)
		}
		names[shape] = name
	}
	return names
}

// stepOf names a command of a probe, its record, and its arguments.
func stepOf(c call, names map[string]string) string {
	if c.name == "find" || c.name == "insert" || c.name == "delete" {
		return c.name
	}
	if probeRecord(c) != "" {
		return c.name + " passed"
	}
	text := c.cmd.String()
	record := ""
	for _, r := range []string{"key", "short", "new", "many", "living", "unknown"} {
		if strings.Contains(text, "/"+r+`"`) {
			record = " " + r
		}
	}
	name, isKey := names[shapeOf(c)]
	scratch := c.cmd.Lookup("update", "0", "$set", "_", "$literal")
	if scratch.IsZero() {
		scratch = c.cmd.Lookup("updates", "0", "u", "0", "$set", "_", "$literal")
	}
	switch {
	case strings.HasPrefix(name, "acquire") || name == "try":
		var asked struct {
			Dead  []string
			C     int64
			Claim struct {
				A, S string
				W    int64
			}
		}
		if err := scratch.Unmarshal(&asked); err != nil {
			return err.Error()
		}
		if len(asked.Dead) > 0 {
			name += " " + strings.Join(asked.Dead, ", ")
		}
		return fmt.Sprintf("%s%s, %s for %s, weight %d of %d", name, record, asked.Claim.A, asked.Claim.S, asked.Claim.W, asked.C)
	case name == "resize":
		return name + record
	case isKey:
		if c.name == "update" {
			name += " alone"
		}
		return name + record + " " + scratch.Document().Lookup("mine").StringValue()
	case shortOf(c) != "":
		return shortOf(c) + record + " " + shortClaim.FindString(text)
	}
	return c.name + record
}

func TestProbeTriesEveryCommand(t *testing.T) {
	for name, test := range map[string]struct {
		hello func(bson.D) bson.D
		want  []string
	}{
		"replica set":     {slices.Clone[bson.D], stepsOfAProbe},
		"sharded cluster": {asMongos, elsewhere},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			f.say(test.hello)
			client := f.anyClient()
			f.script(honest)
			s, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
			noErr(t, err)
			sent := f.took()
			names := shapes(t, s, f)
			var got []string
			for _, c := range sent {
				got = append(got, stepOf(c, names))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the probe sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// The last command of a probe deletes each record that any of its commands is for.
func TestProbeDeletesItsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(honest)
		_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
		noErr(t, err)
		sent := f.took()
		deleted := sent[slices.Index(stepsOfAProbe, "delete")].cmd.String()
		for _, c := range sent {
			for _, id := range regexp.MustCompile(`"p/[^"]+"`).FindAllString(c.cmd.String(), -1) {
				if !strings.Contains(deleted, id) {
					t.Fatalf("the record %s is not deleted: sent %s", id, deleted)
				}
			}
		}
	})
}

// If the server refuses any one of the probe's commands, Open returns an error, deletes the probe's records, and does
// not record that the server has passed.
func TestProbeFailsWithEachOfItsCommands(t *testing.T) {
	for i, step := range stepsOfAProbe {
		if step == "find" {
			continue // the server must refuse this command anyway
		}
		inBubble(t, fmt.Sprint(i+1, " ", step), func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(func(c call) bson.D {
				if len(f.took()) == 1+i {
					return refusal(13, "Unauthorized")
				}
				return honest(c)
			})
			if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "Unauthorized") {
				t.Errorf("got %v, want the server's error", err)
			}
			sent := f.took()
			if step == "update passed" {
				sent = sent[:len(sent)-1]
			}
			if last := sent[len(sent)-1]; last.name != "delete" && step != "findAndModify passed" {
				t.Errorf("the last command is %v, want the probe's records deleted, and nothing remembered", last.cmd)
			}
		})
	}
}

// No command of the probe gives a record an old time, so a Sweep of another process leaves the probe's records alone.
func TestProbeMakesNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.clock = func() time.Time { return time.Now().Add(time.Hour) }
		f.script(honest)
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); err != nil {
			t.Fatal(err)
		}
		times := make(map[string]int)
		note := func(command string, at time.Time) {
			times[command]++
			if want := f.clock(); !at.Equal(want) {
				t.Errorf("%s: the record's time is %v, want %v", command, at, want)
			}
		}
		for _, c := range f.took() {
			if at, ok := c.shortGrant("at").TimeOK(); ok {
				note("short acquire", at)
			}
			if len(idsIn(c)) > 0 {
				granted, _ := c.cmd.Lookup(grantedTogether...).ArrayOK()
				records, _ := granted.Values()
				for _, r := range records {
					note("acquires together", r.Document().Lookup("at").Time())
				}
			}
			if docs, ok := c.cmd.Lookup("documents").ArrayOK(); ok {
				for _, doc := range must(docs.Values()) {
					note("insert", doc.Document().Lookup("at").Time())
				}
			}
		}
		if times["short acquire"] != 10 || times["acquires together"] != 8 || times["insert"] != 12 {
			t.Errorf("found the times of %v, want those of 10 short acquires, 8 together and 12 inserted records", times)
		}
	})
}
