package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The read-only commands write nothing, and neither does a break of a key that does not exist. The collection has a
// holder, a queue and an expired session. If the collection does not exist, these commands don't create it.
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
				want := 0
				if args[0] == "break" || !found && args[0] != "clock" {
					want = 118 // the key does not exist, and there are no processes
				}
				if status != want || want == 0 && found && (out == "" || bad != "") {
					t.Errorf("%v: exit status %d, %q, %q, want status %d", args, status, out, bad, want)
				}
				if slices.Contains(args, "--json") {
					for line := range strings.Lines(out) {
						if !json.Valid([]byte(line)) {
							t.Errorf("%v: %q is not JSON", args, line)
						}
					}
				}
				if len(spy.took("")) == 0 {
					t.Errorf("%v sent no commands, so this test shows nothing", args)
				}
				spy.wroteNothing(fmt.Sprint(args))
			}
		}
		run(false)
		if names, err := r.Client(t).Database(r.DB).ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
			t.Errorf("collections %v, %v, want none", names, err)
		}

		// Write records of three sessions and of a key. Nobody renews the sessions, whose TTL is an hour.
		store := r.store()
		for i, id := range []string{"first", "second", "expired"} {
			if _, err := store.Register(t.Context(), driver.Member{ID: id, TTL: time.Hour, Host: "here", PID: 7}); err != nil {
				t.Fatal(err)
			}
			c := driver.Claim{Key: "held", ID: id + ".1", Session: id, Kind: driver.KindElection, Weight: 1, Limit: 1}
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
			t.Errorf("the collection was\n%v\nand is now\n%v", before, after)
		}
	})
}

// The command break makes another session's holder release a key. It leaves no session of its own
// behind.
func TestBreakCommand(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		holder := r.session(r.short(patient))
		h := lock(t, holder.Mutex("key"))
		go func() {
			<-h.Lost()
			h.Release(context.Background())
		}()
		status, out, bad := newSpy(r).run("break", "key")
		if status != 0 || bad != "" || !strings.Contains(out, "released it") || !strings.Contains(out, "key: free now, 0 waiting") {
			t.Errorf("exit status %d; stdout %q, stderr %q", status, out, bad)
		}
		members, _, err := admin.New(holder).Members(t.Context())
		if err != nil || len(members) != 1 || members[0].ID != holder.ID() {
			t.Errorf("members %+v, %v, want only the holder", members, err)
		}
	})
}
