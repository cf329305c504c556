package dsynchttp_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The size of the page depends on what it shows, not on how many keys and members there are. With
// 100,000 keys that this process holds, and 300 members, the page is as large as with a hundred
// keys. A stream of events sends next to nothing while nothing changes, and a few lines for each
// lock if there are 10 locks a second.
func TestPageIsBounded(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		opt := &dsync.Options{TTL: time.Hour} // few heartbeats, because each reads 100,000 claims in the memory store
		s, other := newSession(t, store, opt), newSession(t, store, opt)
		h := newPage(t, s, nil)
		keys := 100_000
		if testing.Short() {
			keys = 20_000 // at least as many as a search reads
		}
		for i := range keys {
			lock(t, s.Mutex(fmt.Sprintf("customers/%06d/invoices", i)))
		}
		for i := range 300 {
			lock(t, newSession(t, store, opt).Mutex(fmt.Sprintf("one of/%d", i)))
		}
		for url, most := range map[string]int{
			"/": 170 << 10, "/?format=json": 180 << 10, "/?n=10": 25 << 10,
			"/?contains=9999": 60 << 10, "/?sort=age": 170 << 10, "/key?key=customers/000000/invoices": 8 << 10,
		} {
			w := get(h, url)
			if n := w.Body.Len(); w.Code != 200 || n > most {
				t.Errorf("GET %s is %d with %d bytes, want at most %d", url, w.Code, n, most)
			} else {
				t.Logf("GET %s: %d bytes", url, n)
			}
		}
		ctx, cancel := context.WithCancel(background)
		st, done := follow(h, ctx, "/events?sort=key") // this order also shows keys that are locked only for a moment
		synctest.Wait()
		if n := st.take(); n < 50<<10 || n > 190<<10 {
			t.Errorf("the first event has %d bytes, want 50 to 190 KiB", n)
		}
		time.Sleep(5 * time.Second) // by then the other sessions have sent a heartbeat, and so have begun to listen
		synctest.Wait()
		st.take()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := st.take() / 20; n > 300 {
			t.Errorf("the stream sent %d bytes a second while nothing changed, want at most 300", n)
		} else {
			t.Logf("%d bytes of events a second while nothing changes", n)
		}
		for i := range 100 {
			mu := other.Mutex(fmt.Sprintf("customers/%06d/other", i/2%50))
			lock(t, mu)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := st.take() / 10; n < 500 || n > 10<<10 {
			t.Errorf("the stream sent %d bytes a second at 10 locks a second, want from 500 to 10 KiB", n)
		} else {
			t.Logf("%d bytes of events a second with 10 locks a second", n)
		}
		cancel()
		<-done
	})
}

// take returns how many bytes came since the last call.
func (s *stream) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.body.Len()
	s.body.Reset()
	return n
}

// If a key has many holders, the page shows only some of them and says so.
func TestManyHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := newPage(t, s, nil)
		sem := s.Semaphore("k", 1000)
		for range 300 {
			noErr(t, sem.Acquire(background, 1))
		}
		k := getJSON(t, h, "/key?key=k").Keys[0]
		if len(k.Holders) != 100 || k.HolderCount != 300 {
			t.Errorf("the page shows %d holders of %d, want 100 of 300", len(k.Holders), k.HolderCount)
		}
		if body := get(h, "/key?key=k").Body.String(); !strings.Contains(body, "100 of 300") || strings.Count(body, "<tr data-id") > 130 {
			t.Errorf("the page has %d rows, want at most 130, and must say \"100 of 300\"", strings.Count(body, "<tr data-id"))
		}
	})
}

// content applies the events one after the other, as the page's script does, and returns the
// resulting content.
func content(t *testing.T, events []string) string {
	t.Helper()
	var lines []string
	for _, e := range events {
		data, ok := strings.CutPrefix(e, "event: content\n")
		if !ok {
			continue // a comment that keeps the stream alive
		}
		var next []string
		for i, line := range strings.Split(data, "\n") {
			line, ok := strings.CutPrefix(line, "data: ")
			switch {
			case !ok:
				t.Fatalf("an event has the bad line %q", line)
			case i == 0: // times
			case line[0] == '+':
				next = append(next, line[1:])
			default:
				a, b, _ := strings.Cut(line[1:], ",")
				from, err1 := strconv.Atoi(a)
				n, err2 := strconv.Atoi(b)
				if line[0] != '=' || err1 != nil || err2 != nil || n < 1 || from+n > len(lines) {
					t.Fatalf("an event copies %q of %d lines", line, len(lines))
				}
				next = append(next, lines[from:from+n]...)
			}
		}
		lines = next
	}
	return strings.Join(lines, "\n")
}
