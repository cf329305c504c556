package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// A run that the client closes has failed; one that it reports as done has succeeded, for programs in Go as well.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		failed, _ := w.hold("/v1/once/schema")
		next := w.wait("/v1/once/schema")
		failed.close()
		l := next.next()
		w.done(l, "v7", http.StatusNoContent)
		next.wantEnd()
		w.done(l, "v8", http.StatusNotFound)
		if value, ok, err := w.other.Once("schema").Value(background); string(value) != "v7" || !ok || err != nil {
			t.Errorf("a program in Go has %q, %t, %v", value, ok, err)
		}
		for _, path := range []string{"/v1/once/schema", "/v1/once/schema?wait=0s"} {
			again := w.get(path)
			if l := again.next(); l.Done != "schema" || l.Value == nil || *l.Value != "v7" || l.ID != "" {
				t.Errorf("after the run, %s: %+v", path, l)
			}
			again.wantEnd()
		}
	})
}

// A run that was lost does not count, even if the client says that it is done.
func TestRunThatIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/once/schema?limit=1s")
		time.Sleep(time.Second + grace/2)
		if got := r.next(); got.Lost == "" {
			t.Errorf("the line is %+v, want lost", got)
		}
		w.done(l, "v7", http.StatusGone)
		if _, ok, err := w.other.Once("schema").Value(background); ok || err != nil {
			t.Errorf("the run counts: %t, %v", ok, err)
		}
	})
}

// A tick for which a run has succeeded is over, and so are earlier ones.
func TestPeriodic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		const path, tick = "/v1/periodic/nightly?tick=", "2026-11-01T02:00:00Z"
		r, l := w.hold(path + tick)
		if l.Tick != "2026-11-01T02:00:00.000Z" {
			t.Errorf("the tick is %q", l.Tick)
		}
		w.done(l, "", http.StatusNoContent)
		r.wantEnd()
		at, _ := time.Parse(time.RFC3339, tick)
		if last, _, err := w.other.Periodic("nightly").Last(background); !last.Equal(at) || err != nil {
			t.Errorf("a program in Go has %v, %v", last, err)
		}
		for _, over := range []string{tick, "2026-10-31T02:00:00Z"} {
			if l := w.get(path + over).next(); l.Done != "nightly" || l.Tick != "2026-11-01T02:00:00.000Z" {
				t.Errorf("tick %s: %+v", over, l)
			}
		}
		later, _ := w.hold(path + "2026-11-02T02:00:00Z")
		later.close()
	})
}

// Of those who wait, the most preferred is elected. A client that gives no preference is an equal of a program in Go that
// has none: its leader does not yield to the client.
func TestElectionPreference(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		e, err := leader.New(w.other, "reports", &leader.Options{YieldAfter: time.Second})
		noErr(t, err)
		term, err := e.Campaign(background)
		noErr(t, err)
		plain := w.wait("/v1/elections/reports")
		time.Sleep(time.Hour)
		if term.Err() != nil {
			t.Fatalf("the leader has yielded to an equal: %v", context.Cause(term))
		}
		plain.close()
		preferred := w.wait("/v1/elections/reports?preference=2")
		<-term.Done()
		if l := preferred.later(); l.Elected != "reports" || l.Term != 2 {
			t.Errorf("the line is %+v, want the second term", l)
		}
		preferred.close()
	})
}

// Each term of a client is a line, its end another, and then the client campaigns on.
func TestElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, first := w.hold("/v1/elections/reports?value=http://a")
		if first.Elected != "reports" || first.Term != 1 {
			t.Errorf("the line is %+v", first)
		}
		watch := w.get("/v1/elections/reports/leaders")
		if l := watch.next(); l.Leader == nil || l.Leader.Name != "agent" || l.Leader.Term != 1 || l.Leader.Value != "http://a" {
			t.Errorf("the leader is %+v", l.Leader)
		}

		// Broken: lost at once, elected again after the grace, and not before.
		go admin.New(w.other).Break(background, "reports")
		if l := r.later(); !strings.Contains(l.Lost, dsync.ErrRevoked.Error()) {
			t.Errorf("the line is %+v, want lost", l)
		}
		time.Sleep(grace / 2)
		r.wantOpen()
		time.Sleep(grace)
		second := r.next()
		if second.Elected != "reports" || second.Term != 2 || second.Token <= first.Token {
			t.Errorf("the line is %+v, want a second term", second)
		}

		// Done: another candidate leads, and this one again after that.
		e, err := leader.New(w.other, "reports", nil)
		noErr(t, err)
		elected := make(chan error, 1)
		go func() {
			_, err := e.Campaign(background)
			elected <- err
		}()
		time.Sleep(time.Second)
		w.done(second, "", http.StatusNoContent)
		noErr(t, <-elected)
		time.Sleep(4 * ttl)
		r.wantOpen()
		if l := w.get("/v1/elections/reports/leader").next(); l.Leader == nil || l.Leader.Name != "other" || l.Leader.Term != 3 {
			t.Errorf("the leader is %+v, want other, in term 3", l.Leader)
		}
		if err := e.Resign(background); err != nil {
			t.Error(err)
		}
		if third := r.next(); third.Term != 4 {
			t.Errorf("the line is %+v, want term 4", third)
		}

		// Closed: it has resigned.
		r.close()
		testkit.WantFree(t, w.memory, "reports")
		if l := w.get("/v1/elections/reports/leader"); l.status != 200 || l.next().Leader != nil {
			t.Error("somebody leads")
		}
		var last line
		for watch.next(); len(watch.lines) > 0; {
			last = watch.next()
		}
		if last.Leader != nil {
			t.Errorf("the last line of leaders has %+v, want null", last.Leader)
		}
		watch.wantOpen()
		watch.close()
	})
}

// A candidate gets signs of life, and leaves the queue when it goes.
func TestCandidateThatGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		e, err := leader.New(w.other, "reports", nil)
		noErr(t, err)
		if _, err := e.Campaign(background); err != nil {
			t.Fatal(err)
		}
		r := w.wait("/v1/elections/reports")
		time.Sleep(3 * beat)
		if r.wantOpen(); r.signs() < 2 {
			t.Errorf("%d signs of life, want at least 2", r.signs())
		}
		r.close()
		if n := testkit.QueueLength(t, w.memory, "reports"); n != 0 {
			t.Errorf("%d candidates are left", n)
		}
		if l := w.get("/v1/locks/reports").next(); !strings.Contains(l.Error, "is in use with kind") {
			t.Errorf("an election's name as a mutex: %+v", l)
		}
		if err := e.Resign(background); err != nil {
			t.Error(err)
		}
	})
}

// The status of a key is that of leasehold status --json.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/locks/k")
		answer, err := w.client.Get("http://localhost/v1/status/k")
		noErr(t, err)
		defer answer.Body.Close()
		var got struct {
			Key     string
			Held    bool
			Token   int64
			Holders []struct{ Name string }
		}
		noErr(t, json.NewDecoder(answer.Body).Decode(&got))
		if got.Key != "k" || !got.Held || got.Token != l.Token || len(got.Holders) != 1 || got.Holders[0].Name != "agent" {
			t.Errorf("the status is %+v", got)
		}
		r.close()
		if h := w.get("/v1/health"); h.status != 200 {
			t.Errorf("health: %d", h.status)
		}
	})
}
