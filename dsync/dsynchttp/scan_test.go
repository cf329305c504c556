package dsynchttp_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// keysOf returns the keys that the page at url shows, and a "…" if there are more.
func keysOf(t *testing.T, h *dsynchttp.Handler, url string) string {
	t.Helper()
	l := getJSON(t, h, url)
	var all []string
	for _, k := range l.Keys {
		all = append(all, k.Key)
	}
	if l.Next != "" {
		all = append(all, "…")
	}
	return strings.Join(all, " ")
}

// mineOf returns the keys of this process that the page at url shows.
func mineOf(t *testing.T, h *dsynchttp.Handler, url string) string {
	t.Helper()
	var all []string
	for _, m := range getJSON(t, h, url).Mine {
		all = append(all, m.State+":"+m.Key)
	}
	return strings.Join(all, " ")
}

// The page can search keys by substring and sort them, both in the list of all keys and in the list
// of keys that this process holds or waits for.
func TestPageSearchesAndSorts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		h := newPage(t, s, nil)
		for _, key := range []string{"jobs/c", "jobs/A", "jobs/a", "mail/a"} {
			lock(t, s.Mutex(key))
			time.Sleep(time.Second)
		}
		lock(t, other.Mutex("jobs/b"))
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		go newSession(t, store, nil).Mutex("jobs/a").LockContext(ctx)
		for range 2 {
			go newSession(t, store, nil).Mutex("jobs/b").LockContext(ctx)
		}
		synctest.Wait()
		go s.Mutex("jobs/b").LockContext(ctx)
		synctest.Wait()
		for _, test := range []struct{ query, keys, mine string }{
			{"", "jobs/A jobs/a jobs/b jobs/c mail/a", "holds:jobs/A holds:jobs/a waits:jobs/b holds:jobs/c holds:mail/a"},
			{"prefix=jobs", "jobs/A jobs/a jobs/b jobs/c", "holds:jobs/A holds:jobs/a waits:jobs/b holds:jobs/c"},
			{"contains=/a", "jobs/a mail/a", "holds:jobs/a holds:mail/a"},
			{"contains=s/&prefix=jobs&n=2", "jobs/A jobs/a …", "holds:jobs/A holds:jobs/a"},
			{"contains=b/c", "", ""},
			{"sort=key", "jobs/A jobs/a jobs/b jobs/c mail/a", "holds:jobs/A holds:jobs/a waits:jobs/b holds:jobs/c holds:mail/a"},
			{"sort=age", "jobs/c jobs/A jobs/a mail/a jobs/b", "holds:jobs/c holds:jobs/A holds:jobs/a holds:mail/a waits:jobs/b"},
			{"sort=age&n=1", "jobs/c", "holds:jobs/c"},
			{"sort=waiters", "jobs/b jobs/a jobs/A jobs/c mail/a", "waits:jobs/b holds:jobs/c holds:jobs/A holds:jobs/a holds:mail/a"},
			{"sort=waiters&n=2", "jobs/b jobs/a", "waits:jobs/b holds:jobs/c"},
			{"n=2&mine=2", "jobs/A jobs/a …", "waits:jobs/b holds:jobs/c"},
			{"n=2&mine=4", "jobs/A jobs/a …", "holds:mail/a"},
		} {
			if got := keysOf(t, h, "/?"+test.query); got != test.keys {
				t.Errorf("?%s has keys %s, want %s", test.query, got, test.keys)
			}
			if got := mineOf(t, h, "/?"+test.query); got != test.mine {
				t.Errorf("?%s shows these keys of this process: %s, want %s", test.query, got, test.mine)
			}
		}
		if got := mineOf(t, h, "/key?key=jobs/b"); got != "waits:jobs/b" {
			t.Errorf("the page of a key shows these keys of this process: %s, want only that key", got)
		}
		body := get(h, "/?n=2&mine=2&prefix=jobs").Body.String()
		for _, want := range []string{
			"3 to 4 of 4", `rel="prev" href="./?n=2&amp;prefix=jobs"`, "1 to 2 of 5", `rel="next" href="./?members=2&amp;mine=2&amp;n=2&amp;prefix=jobs"`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
	})
}

// Keys that are held or waited for come first, even if they come late in byte order. The page has a link to the list of
// all keys in byte order. The page reads at most a thousand keys to find those in use.
func TestPageShowsKeysInUseFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{TTL: time.Hour})
		h := newPage(t, newSession(t, store, nil), nil)
		for i := range 1500 {
			mu := s.Mutex(fmt.Sprintf("idle/%04d", i))
			lock(t, mu)
			mu.Unlock()
		}
		for _, key := range []string{"idle/0900/held", "idle/0100/held", "idle/1400/held"} {
			lock(t, s.Mutex(key))
		}
		for query, want := range map[string]string{
			"n=3":                "idle/0100/held idle/0900/held idle/0000 …",
			"n=2":                "idle/0100/held idle/0900/held …",
			"n=1":                "idle/0100/held …",
			"sort=held&n=1":      "idle/0100/held …",
			"sort=key&n=2":       "idle/0000 idle/0001 …",
			"n=3&prefix=idle/14": "idle/1400/held idle/1400 idle/1401",
		} {
			if got := keysOf(t, h, "/?"+query); got != want {
				t.Errorf("?%s has keys %s, want %s", query, got, want)
			}
		}
		if l := getJSON(t, h, "/"); l.Read != 1000 {
			t.Errorf("the page read %d keys, want 1000", l.Read)
		}
		const link = `<a href="./?prefix=idle%2F14&amp;sort=key">All keys in their order</a>`
		if body := get(h, "/?prefix=idle/14").Body.String(); !strings.Contains(body, link) {
			t.Errorf("the page lacks %s", link)
		}
	})
}

// A search reads at most 10,000 keys, and its next page continues from there, so that each key is
// found in the end.
func TestPageSearchesInSteps(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{TTL: time.Hour})
		h := newPage(t, newSession(t, store, nil), nil)
		for i := range 25_000 {
			lock(t, s.Mutex(fmt.Sprintf("%05d", i)))
		}
		for query, want := range map[string][]int{ // the number of keys that each page shows
			"contains=999":   {19, 19, 5}, // 00999, 01999 … 09990 to 09999
			"sort=age&n=10":  {10, 10, 10},
			"contains=z":     {0, 0, 0},
			"contains=24999": {0, 0, 1},
		} {
			before := store.Counts()
			found := 0
			for i, url := 0, "/?"+query; url != ""; i++ {
				l := getJSON(t, h, url)
				if i >= len(want) || len(l.Keys) != want[i] || l.Read > 10_000 || l.Read == 0 {
					t.Fatalf("page %d of ?%s shows %d keys and read %d; want pages of %v keys, each from at most 10,000", i, query, len(l.Keys), l.Read, want)
				}
				found++
				url = strings.TrimPrefix(l.Next, ".")
			}
			if found != len(want) {
				t.Errorf("?%s has %d pages, want %d", query, found, len(want))
			}
			if n := store.Counts().Since(before).Commands[dsynctest.MethodKeys]; n > 3*14 {
				t.Errorf("?%s made %d reads of 25,000 keys, want at most %d", query, n, 3*14)
			}
		}
	})
}

// If a reading of the store takes a long time, a stream reads less often, so that it spends at most a tenth of the time
// on readings.
func TestEventsOfASlowStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var reads atomic.Int64
		f := testkit.NewFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodKeys {
				return dsynctest.Fault{}
			}
			reads.Add(1)
			return dsynctest.Fault{Delay: time.Second}
		})
		h := newPage(t, newSession(t, f, nil), &dsynchttp.Options{Refresh: 2 * time.Second})
		ctx, cancel := context.WithCancel(background)
		_, done := follow(h, ctx, "/events")
		time.Sleep(100*time.Second - time.Millisecond)
		if n := reads.Load(); n != 10 {
			t.Errorf("the stream made %d readings of 1 s each in 100 s, want 10", n)
		}
		cancel()
		<-done
	})
}
