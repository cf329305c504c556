package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Read-only commands write nothing: neither on a collection with holders, a queue and an expired
// session, nor on a server without the collection, which they don't create.
func TestReadOnlyCommandsWriteNothing(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		run := func(found bool) {
			t.Helper()
			for _, args := range [][]string{
				{"status"}, {"status", "--json"}, {"status", "he"}, {"status", "--exact", "held"},
				{"members"}, {"members", "--json"}, {"members", "held"}, {"clock", "--limit", "1h"}, {"clock", "--json", "--limit", "1h"},
				{"break", "free"},
			} {
				status, out, bad := spy.run(args...)
				if status != 0 || found && (out == "" || bad != "") {
					t.Errorf("%v: exit status %d, %q, %q", args, status, out, bad)
				}
				if slices.Contains(args, "--json") {
					for line := range strings.Lines(out) {
						if !json.Valid([]byte(line)) {
							t.Errorf("%v: %q is no JSON", args, line)
						}
					}
				}
				if len(spy.took("")) == 0 {
					t.Errorf("%v sent nothing, so nothing was shown", args)
				}
				spy.wroteNothing(fmt.Sprint(args))
			}
			begin := time.Now()
			spy.interrupted(func(out string) bool { return time.Since(begin) > 3*time.Second && (!found || out != "") }, "watch", "--interval", "100ms")
			spy.wroteNothing("watch")
		}
		run(false)
		if names, err := r.Client(t).Database(r.DB).ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
			t.Errorf("collections %v, %v, want none", names, err)
		}

		// A record of each sort, of sessions with a TTL of an hour that nobody renews.
		store := r.store()
		for i, id := range []string{"first", "second", "expired"} {
			if _, err := store.Register(t.Context(), dsync.Member{ID: id, TTL: time.Hour, Host: "here", PID: 7}); err != nil {
				t.Fatal(err)
			}
			c := driver.Claim{Key: "held", ID: id + ".1", Session: id, Kind: dsync.KindElection, Weight: 1, Limit: 1}
			if _, _, err := storecmd.Acquire(t.Context(), store, c, true, nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := storecmd.Unregister(t.Context(), store, "expired"); err != nil {
			t.Fatal(err)
		}
		before := spy.documents()
		run(true)
		if after := spy.documents(); !maps.Equal(before, after) {
			t.Errorf("the collection was\n%v\nand is\n%v", before, after)
		}
	})
}

// watch shows a grant and its end while they happen, and ends when it is interrupted.
func TestWatchCommand(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		m := r.session(dsync.Options{Name: "holder"}).Mutex("key")
		lock(t, m, 20*time.Second)
		token, stage := m.Token(), 0
		state, out, bad := newSpy(r).interrupted(func(out string) bool {
			switch {
			case stage == 0 && strings.Contains(out, "key  held: holder on "):
				unlock(t, m)
				stage++
			case stage == 1 && strings.Contains(out, "key  ended: holder on "):
				lock(t, m, 20*time.Second)
				stage++
			}
			return stage == 2 && strings.Contains(out, fmt.Sprintf("key  granted: holder on %s", hostOf(out))) && strings.Contains(out, fmt.Sprint("token ", token))
		}, "watch", "--interval", "200ms")
		if state.Success() || bad != "" {
			t.Errorf("it ended with %v, %q; it printed\n%s", state, bad, out)
		}
		unlock(t, m)
	})
}

// hostOf is the host that watch's first line names.
func hostOf(out string) string {
	_, host, _ := strings.Cut(out, "held: holder on ")
	host, _, _ = strings.Cut(host, ",")
	return host
}

// break has a holder elsewhere give a key up, and leaves no session behind.
func TestBreakCommand(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		holder := r.session(r.short(patient))
		m := holder.Mutex("key")
		lock(t, m, 20*time.Second)
		go func() {
			<-m.Lost()
			m.Unlock()
		}()
		status, out, bad := newSpy(r).run("break", "key")
		if status != 0 || bad != "" || !strings.Contains(out, "gave it up") || !strings.Contains(out, "key: free now, 0 waiting") {
			t.Errorf("exit status %d, %q, %q", status, out, bad)
		}
		members, _, err := holder.Members(t.Context())
		if err != nil || len(members) != 1 || members[0].ID != holder.ID() {
			t.Errorf("members %+v, %v, want the holder alone", members, err)
		}
	})
}

// bench measures, says so, and drops what it has made, also when it is interrupted.
func TestBenchCommand(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		spy := newSpy(r)
		status, out, bad := spy.run("bench", "--count", "20")
		if status != 0 && status != 118 || status == 0 && bad != "" { // 118: this machine is busy with other tests
			t.Errorf("exit status %d, %q", status, bad)
		}
		for _, want := range []string{"majority write   20 ", "Lock and Unlock  20 ", "hand-off         2 ", "good enough for a TTL of 30s"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		lab.Note(t, "%s", strings.ReplaceAll(out, "\n", "; "))
		collections := func() []string {
			names, err := r.Client(t).Database(r.DB).ListCollectionNames(t.Context(), bson.D{})
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		if left := collections(); len(left) > 0 {
			t.Errorf("it has left %v", left)
		}
		made := func(string) bool { return len(spy.took("update")) > 20 }
		spy.forget()
		state, _, bad := spy.interrupted(made, "bench", "--count", "1000000")
		if state.ExitCode() != 130 || bad != "" {
			t.Errorf("interrupted: exit status %d, %q", state.ExitCode(), bad)
		}
		if left := collections(); len(left) > 0 {
			t.Errorf("interrupted, it has left %v", left)
		}
	})
}
