package dsynchttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// waitsOf returns a line for each pair of a waiting process and the process that it waits for, with the keys.
func waitsOf(l view) (all []string) {
	for _, w := range l.Waits {
		line := fmt.Sprintf("%s waits for %s: %s", w.Waiter.Name, w.Holder.Name, strings.Join(w.Keys, " "))
		if w.More > 0 {
			line += fmt.Sprintf(" and %d more", w.More)
		}
		if w.Cycle {
			line += ", in a cycle"
		}
		all = append(all, line)
	}
	return all
}

// The page shows which process waits for which other process, and which processes wait in a cycle.
func TestPageShowsWaitingProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		process := make(map[string]*dsync.Session)
		for _, name := range []string{"a", "b", "c", "d"} {
			process[name] = newSession(t, store, &dsync.Options{Name: name})
		}
		h := newPage(t, process["a"], nil)
		hold := func(name string, keys ...string) {
			for _, key := range keys {
				lock(t, process[name].Mutex(key))
			}
		}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		waits := func(name string, keys ...string) {
			for _, key := range keys {
				go process[name].Mutex(key).LockContext(ctx)
				synctest.Wait()
			}
		}
		hold("a", "1")
		hold("b", "2")
		hold("c", "3", "4", "5", "6", "7")
		waits("a", "2", "1") // process a holds key 1 itself, so its wait for that key stays inside the process and the store does not see it
		waits("d", "3", "4", "5", "6", "7")
		waits("b", "3")
		want := []string{"d waits for c: 3 4 5 and 2 more", "a waits for b: 2", "b waits for c: 3"}
		if got := waitsOf(getJSON(t, h, "/")); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q, want %q", got, want)
		}
		waits("c", "1")             // now a, b and c wait for each other in a cycle
		time.Sleep(4 * time.Second) // younger holds are not reported
		want = []string{"c waits for a: 1, in a cycle", "a waits for b: 2, in a cycle", "b waits for c: 3, in a cycle", "d waits for c: 3 4 5 and 2 more"}
		l := getJSON(t, h, "/")
		if got := waitsOf(l); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q, want %q", got, want)
		}
		if len(l.Waits) == 4 && (!l.Waits[0].Holder.Mine || l.Waits[0].Waiter.Mine) {
			t.Errorf("this process is not distinguished from others: %+v", l.Waits[0])
		}
		if got, want := waitsOf(getJSON(t, h, "/?n=2")), "[c waits for a: 1 a waits for b: 2]"; fmt.Sprint(got) != want {
			t.Errorf("with n=2 %q, want %s", got, want)
		}
		body := get(h, "/").Body.String()
		if n := strings.Count(body, ">cycle<"); n != 3 || !strings.Contains(body, "and 2 more") {
			t.Errorf("the page shows %d pairs in cycles, want 3, and also the other pairs", n)
		}
		if body := get(h, "/?prefix=4").Body.String(); strings.Contains(body, ">cycle<") {
			t.Error("the page shows a cycle of keys that the query does not select")
		}
	})
}

// The candidates of an election wait for the leader's key, but that blocks no other work of theirs.
func TestElectionsMakeNoCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, &dsync.Options{Name: "a"}), newSession(t, store, &dsync.Options{Name: "b"})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		leader, err := engine.Of(a).Hold(ctx, engine.Whole("leader", driver.KindElection))
		noErr(t, err)
		lock(t, b.Mutex("k"))
		go engine.Of(b).Hold(ctx, engine.Whole("leader", driver.KindElection))
		go a.Mutex("k").LockContext(ctx)
		synctest.Wait()
		want := []string{"a waits for b: k", "b waits for a: leader"}
		if got := waitsOf(getJSON(t, newPage(t, a, nil), "/")); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q, want %q", got, want)
		}
		leader.Release(background)
	})
}

// If very many processes wait, the page shows only some of them and says so.
func TestManyWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		h := newPage(t, s, nil)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for i := range 150 {
			key := fmt.Sprintf("%03d", i)
			lock(t, s.Mutex(key))
			go newSession(t, store, nil).Mutex(key).LockContext(ctx)
		}
		synctest.Wait()
		if l := getJSON(t, h, "/?sort=waiters"); len(l.Waits) != 100 {
			t.Errorf("%d pairs are shown, want 100", len(l.Waits))
		}
		if body := get(h, "/?sort=waiters").Body.String(); !strings.Contains(body, "100+, for the keys that were read") {
			t.Error("the page does not say that there are more")
		}
	})
}

// B44: a hold that ends at its planned time does not look like a crash. Until somebody uses the key again, the store's
// record still names the holder. But the status, its JSON and the page show a free key, even in the holder's own
// process.
func TestPlannedEndIsNoCrash(t *testing.T) {
	const d = 20 * time.Second
	for name, hold := range map[string]func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty){
		"ReleaseAfter": func(t *testing.T, s *dsync.Session, _ *dsynctest.Faulty) {
			h, err := s.Mutex("k").Hold(background)
			noErr(t, err)
			noErr(t, h.ReleaseAfter(background, d))
		},
		"a lease left to end": func(t *testing.T, s *dsync.Session, _ *dsynctest.Faulty) {
			if _, err := s.Mutex("k").Lease(background, d); err != nil {
				t.Fatal(err)
			}
		},
		"a lease of a process that crashed": func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty) {
			if _, err := s.Mutex("k").Lease(background, d); err != nil {
				t.Fatal(err)
			}
			f.Cut()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			net := dsynctest.NewFaulty(store, nil)
			t.Cleanup(net.Close)
			var log bytes.Buffer
			holder := newSession(t, net, &dsync.Options{
				Host: "batch-1", TTL: d, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			observer := newSession(t, store, nil)
			own, page := newPage(t, holder, nil), newPage(t, observer, nil)
			hold(t, holder, net)
			began := time.Now()
			for time.Since(began) < d { // read the page, as if it were open
				if st, err := admin.New(observer).Status(background, "k"); err != nil || !st.Held() || len(st.Holders) != 1 {
					t.Fatalf("after %v the status is %v, %v", time.Since(began), st, err)
				}
				get(page, "/key?key=k")
				time.Sleep(d / 8)
			}
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			st, err := admin.New(observer).Status(background, "k")
			if err != nil || st.Kind != driver.KindMutex || st.Held() || len(st.Holders) > 0 {
				t.Errorf("the status is %v, %v; want a free mutex without holders", st, err)
			}
			text, _ := json.Marshal(statusjson.NewStatus(st, func(p admin.Participant, queued bool) statusjson.Participant {
				return statusjson.NewParticipant(p, queued, st.Now)
			}))
			shows := map[string]string{
				"the status":       st.String(),
				"its JSON":         string(text),
				"the page":         get(page, "/key?key=k").Body.String(),
				"the page's JSON":  get(page, "/key?key=k&format=json").Body.String(),
				"the holder's own": get(own, "/key?key=k").Body.String(),
				"the overview":     get(page, "/?members=0&prefix=k").Body.String(),
			}
			crashed := strings.Contains(name, "crashed")
			for what, text := range shows {
				for _, bad := range []string{"lapsed", `class="loss"`, "badge lost", `"lost"`} {
					if strings.Contains(text, bad) && !(crashed && what == "the holder's own") {
						t.Errorf("%s has %q:\n%s", what, bad, text)
					}
				}
			}
			wantHistory(t, page, "k", began, fmt.Sprintf("process %d on batch-1 0s-20s", os.Getpid()))
			if log.Len() > 0 && !crashed {
				t.Errorf("the log of the holder warns: %s", log.String())
			}
			net.Heal()
		})
	}
}
