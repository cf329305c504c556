package trace_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/internal/trace"
	"github.com/leasehold-go/leasehold/leader"
)

// record returns the trace of a session that does a bit of everything. Meanwhile, another session
// uses the same store.
func record(t *testing.T) []byte {
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := dsynctest.NewMemory()
		s, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second, Linger: time.Second})
		testkit.NoErr(t, err)
		stop := engine.Of(s).Record(&b)
		other, err := dsync.New(store, nil)
		testkit.NoErr(t, err)
		theirs := other.Mutex("k")
		theirs.Lock()
		mu := s.Mutex("k")
		short, cancel := context.WithTimeout(ctx, time.Second)
		if err := mu.LockContext(short); err == nil {
			t.Error("locked twice")
		}
		cancel()
		if mu.TryLock() {
			t.Error("locked twice")
		}
		time.AfterFunc(time.Second, theirs.Unlock)
		if err := mu.Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := s.Once("once").Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		l, err := s.Mutex("lease").Lease(ctx, 8*time.Second)
		testkit.NoErr(t, err)
		if _, err := l.Extend(ctx); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { admin.New(other).Break(ctx, "rw") })
		reader, err := s.RWMutex("rw").RHold(ctx)
		testkit.NoErr(t, err)
		<-reader.Lost()
		time.Sleep(2 * time.Second) // the grace is over
		reader.Release(ctx)
		for _, limit := range []time.Duration{time.Minute, time.Second} {
			h, err := mu.Hold(ctx)
			testkit.NoErr(t, err)
			if err := h.Progress(limit); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			h.Release(ctx)
		}
		h, err := mu.Hold(ctx)
		testkit.NoErr(t, err)
		if err := h.ReleaseAfter(ctx, time.Minute); err != nil {
			t.Error(err)
		}
		s.Close(ctx)
		stop()
		other.Close(ctx)
	})
	return b.Bytes()
}

// A trace has no published values and no results, which may be secret. A replay does not need them.
func TestNoValuesInATrace(t *testing.T) {
	const secret = "secret"
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	var b bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, err := dsync.New(dsynctest.NewMemory(), nil)
		testkit.NoErr(t, err)
		stop := engine.Of(s).Record(&b)
		e, err := leader.New(s, "e", &leader.Options{Value: []byte(secret)})
		testkit.NoErr(t, err)
		if _, err := e.TryCampaign(ctx); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"", secret} {
			if v, _, err := s.Once("o").Value(ctx); err != nil || string(v) != want {
				t.Errorf("%q, %v; want %q", v, err, want)
			}
			if _, err := s.Once("o").DoValue(ctx, func(context.Context) ([]byte, error) { return []byte(secret), nil }); err != nil {
				t.Error(err)
			}
		}
		s.Close(ctx)
		stop()
	})
	if steps, err := trace.Replay(bytes.NewReader(b.Bytes())); err != nil || steps < 10 {
		t.Errorf("%d events were replayed, %v; want at least 10", steps, err)
	}
	if bytes.Contains(b.Bytes(), []byte(secret)) || bytes.Contains(b.Bytes(), []byte(encoded)) {
		t.Errorf("the trace has the value:\n%s", b.Bytes())
	}
}

func TestReplay(t *testing.T) {
	b := record(t)
	steps, err := trace.Replay(bytes.NewReader(b))
	testkit.NoErr(t, err)
	if lines := bytes.Count(b, []byte("\n")); steps != lines-1 || steps < 30 {
		t.Errorf("%d events were replayed of a trace of %d lines, want all, and at least 30", steps, lines)
	}
}

// A killed process leaves a trace that ends in the middle of a line.
func TestReplayOfHalfALine(t *testing.T) {
	b := record(t)
	if _, err := trace.Replay(bytes.NewReader(b[:len(b)-20])); err != nil {
		t.Error(err)
	}
}

// If the recorded effects of an event differ from those of a fresh Core, the replay names the line.
func TestReplayFindsADifference(t *testing.T) {
	b := record(t)
	for name, other := range map[string][]byte{
		"an event is missing":      without(b, `"Type":"Call"`),
		"another grace":            bytes.Replace(b, []byte(`"Grace":1000000000`), []byte(`"Grace":2000000000`), 1),
		"another Tick":             regexp.MustCompile(`"Next":[0-9]+`).ReplaceAll(b, []byte(`"Next":1`)),
		"another grant":            bytes.ReplaceAll(b, []byte(`"Token":9`), []byte(`"Token":19`)),
		"a type that is not known": bytes.Replace(b, []byte(`"Type":"Call"`), []byte(`"Type":"Called"`), 1),
	} {
		if bytes.Equal(b, other) {
			t.Fatalf("%s: the trace has no such line", name)
		}
		if _, err := trace.Replay(bytes.NewReader(other)); err == nil || !strings.HasPrefix(err.Error(), "trace: line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error of a replay describes the event, its recorded effects and its present effects.
func TestReplaySaysWhatDiffers(t *testing.T) {
	var b bytes.Buffer
	config, seed := core.Config{TTL: time.Second}, trace.Seed{1, 2}
	config.Rand = seed.Rand()
	c, r := core.New(&config), trace.New(&b, &config, seed)
	c.Step(5, core.Need{})
	r.Step(5, core.Need{}, []core.Effect{core.Registered{Session: "s"}}, core.Never)
	_, err := trace.Replay(&b)
	want := "trace: line 2, Need at 5ns: the effects differ from the recorded ones\nevent: {}\n" +
		"recorded:\n\tRegistered s: error <nil>\n\tno Tick is due\n" +
		"now:\n\tSend 1: Register {}\n\tno Tick is due"
	if err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// A trace leaves out fields with the zero value. A key whose text looks like such a field stays unchanged.
func TestReplayOfAnyKey(t *testing.T) {
	for _, key := range []string{`,}`, `"a":0,`, `{"a":null}`, `\",}`} {
		var b bytes.Buffer
		config, seed := core.Config{TTL: 12 * time.Second, Heartbeat: 4 * time.Second, Attempt: time.Second, Lanes: 2, PollLanes: 1}, trace.Seed{1, 2}
		config.Rand = seed.Rand()
		c, r := core.New(&config), trace.New(&b, &config, seed)
		for n, e := range []core.Event{
			&core.Call{Want: core.Want{Key: key, Kind: driver.KindMutex, Weight: 1, Limit: 1}, Call: 1},
			&core.Reply{Command: 1, Session: "s", Now: time.Unix(1000, 0)},
			&core.Reply{Command: 2, Now: time.Unix(1000, 0), State: driver.State{Key: key, Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: 5}}}},
		} {
			effects := c.Step(core.Instant(n), e)
			r.Step(core.Instant(n), e, effects, c.Next())
		}
		if quoted, _ := json.Marshal(key); bytes.Count(b.Bytes(), quoted) != 2 {
			t.Errorf("%q was changed in the trace:\n%s", key, b.Bytes())
		}
		if steps, err := trace.Replay(&b); err != nil || steps != 3 {
			t.Errorf("%q: %d events, %v", key, steps, err)
		}
	}
}

// A Release without options is not the same as no Release: the claim does not linger.
func TestReplayOfAReleaseWithoutOptions(t *testing.T) {
	var b bytes.Buffer
	config, seed := core.Config{TTL: 12 * time.Second, Heartbeat: 4 * time.Second, Attempt: time.Second, Linger: time.Second, Lanes: 2, PollLanes: 1}, trace.Seed{1, 2}
	config.Rand = seed.Rand()
	c, r := core.New(&config), trace.New(&b, &config, seed)
	call := &core.Call{Want: core.Want{Key: "k", Kind: driver.KindMutex, Weight: 1, Limit: 1}, Call: 1}
	for n, e := range []core.Event{
		call,
		&core.Reply{Command: 1, Session: "s", Now: time.Unix(1000, 0)},
		&core.Reply{Command: 2, Now: time.Unix(1000, 0), State: driver.State{Key: "k", Holders: []driver.Holder{{Claim: "s.1", Session: "s", Token: 5}}}},
		&core.Done{Claim: 1, Hold: call, Release: new(driver.Release)},
	} {
		effects := c.Step(core.Instant(n), e)
		r.Step(core.Instant(n), e, effects, c.Next())
	}
	if steps, err := trace.Replay(&b); err != nil || steps != 4 {
		t.Errorf("%d events, %v", steps, err)
	}
}

// without returns the trace without its first line that contains s.
func without(b []byte, s string) (left []byte) {
	removed := false
	for l := range bytes.Lines(b) {
		if !removed && bytes.Contains(l, []byte(s)) {
			removed = true
			continue
		}
		left = append(left, l...)
	}
	return left
}
