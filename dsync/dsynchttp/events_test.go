package dsynchttp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestEventsTellOfChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := newPage(t, newSession(t, store, nil), nil) // an unregistered session, which does not change
		other := newSession(t, store, &dsync.Options{Name: "other"})
		ctx, cancel := context.WithCancel(background)
		s, done := follow(h, ctx, "/events?key=k")
		synctest.Wait()
		all := s.events()
		if len(all) != 1 || !strings.HasPrefix(all[0], "event: content\ndata: ") {
			t.Fatalf("the first events are %q", all)
		}
		for line := range strings.Lines(all[0] + "\n") {
			if !strings.HasPrefix(line, "data: ") && line != "event: content\n" {
				t.Errorf("a line of the event is %q, want event or data", line)
			}
		}
		time.Sleep(7 * time.Second) // not a multiple of the interval, so that no reading is due when the events are checked
		if all = s.events(); len(all) != 0 {
			t.Errorf("the events without a change are %q", all)
		}
		time.Sleep(time.Minute)
		if all = s.events(); len(all) < 5 || strings.Join(all, "") != strings.Repeat(":", len(all)) {
			t.Errorf("in a minute without a change the stream sent %q, want only a comment now and then", all)
		}
		mu := other.Mutex("k")
		lock(t, mu)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all = s.events(); len(all) != 1 || !strings.Contains(all[0], "other") {
			t.Errorf("after a key was locked there are %d events: %.300q", len(all), all)
		}
		if got := s.Header().Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("the content type is %s", got)
		}
		cancel()
		<-done
		mu.Unlock()
	})
}

func TestEventsEnd(t *testing.T) {
	ends := map[string]func(cancel func(), h *dsynchttp.Handler, s *dsync.Session){
		"with the request": func(cancel func(), _ *dsynchttp.Handler, _ *dsync.Session) { cancel() },
		"with the page":    func(_ func(), h *dsynchttp.Handler, _ *dsync.Session) { h.Close(); h.Close() },
		"with the session": func(_ func(), _ *dsynchttp.Handler, s *dsync.Session) { s.Close(background) },
	}
	for name, end := range ends {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			h := newPage(t, s, nil)
			lock(t, s.Mutex("k"))
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			_, done := follow(h, ctx, "/events")
			time.Sleep(time.Minute)
			select {
			case <-done:
				t.Error("the stream ended by itself")
			default:
			}
			end(cancel, h, s)
			select {
			case <-done:
			case <-time.After(2 * time.Second):
				t.Error("the stream has not ended")
			}
		})
	}
}

func TestEventsAreForAFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newPage(t, newSession(t, dsynctest.NewMemory(), nil), nil)
		ctx, cancel := context.WithCancel(background)
		var streams []chan struct{}
		for range 16 {
			_, done := follow(h, ctx, "/events")
			streams = append(streams, done)
		}
		synctest.Wait()
		if w := get(h, "/events"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("the response to the 17th stream is %d, want 503", w.Code)
		}
		cancel()
		for _, done := range streams {
			<-done
		}
		ctx, cancel = context.WithCancel(background)
		s, done := follow(h, ctx, "/events")
		synctest.Wait()
		if all := s.events(); len(all) != 1 {
			t.Errorf("after the others have ended, a stream sends %q, want one event", all)
		}
		cancel()
		<-done
	})
}

// Each event describes a change to the previous content. Applied one after the other, the events
// yield the content that a new stream gets with its first event. This is true of any change, even if lines occur many
// times or contain characters that end a line of an event.
func TestEventsAddUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := newPage(t, newSession(t, store, nil), nil)
		url := "/events?contains=" + urlOf("k\rk") + "&window=1m"
		ctx, cancel := context.WithCancel(background)
		first, done := follow(h, ctx, url)
		rnd := rand.New(rand.NewPCG(1, 2))
		held := make(map[string]*dsync.Mutex)
		var all []string
		for range 60 {
			s := newSession(t, store, &dsync.Options{Name: "name\r\n" + strings.Repeat("x", rnd.IntN(3)), TTL: time.Hour})
			key := fmt.Sprintf("k\rk\nk%d", rnd.IntN(8))
			if mu := held[key]; mu != nil {
				mu.Unlock()
				delete(held, key)
			} else {
				held[key] = s.Mutex(key)
				lock(t, held[key])
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			all = append(all, first.events()...)
			if strings.Contains(strings.Join(all, ""), "\r") {
				t.Fatal("an event has a carriage return")
			}
		}
		now, cancelNow := context.WithCancel(background)
		second, doneNow := follow(h, now, url)
		synctest.Wait()
		got, want := ageless(content(t, all)), ageless(content(t, second.events()))
		if got != want || len(all) < 50 {
			t.Errorf("%d events add up to\n%s\nwant\n%s", len(all), got, want)
		}
		cancel()
		cancelNow()
		<-done
		<-doneNow
		for _, mu := range held {
			mu.Unlock()
		}
	})
}

// ageless returns content without the parts that depend on the anchor.
func ageless(content string) string {
	return regexp.MustCompile(`<time.*?</time>|<svg class="line".*?</svg>`).ReplaceAllString(content, "")
}

// While nothing changes, a stream sends no content, because ages and timelines advance in the browser. This does not
// change when holds become very old. Even after a very long time the stream shows as much as the page.
func TestEventsGoOnForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := newPage(t, newSession(t, store, nil), nil)
		hold := newSession(t, store, &dsync.Options{TTL: time.Hour})
		lock(t, hold.Mutex("k"))
		ctx, cancel := context.WithCancel(background)
		st, done := follow(h, ctx, "/events?window=1m&members=1")
		time.Sleep(10*time.Minute - time.Second)
		all := st.events()
		n := 0
		for _, e := range all {
			if e != ":" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d events in the 10 minutes that one rendering covers, want 1", n)
		}
		if !strings.Contains(content(t, all), `width="1100.00%"`) && !strings.Contains(content(t, all), `x="100.00%" width="1000.00%"`) {
			t.Errorf("the hold is not drawn for the next 10 minutes:\n%s", content(t, all))
		}
		time.Sleep(10 * time.Minute)
		if all = append(all, st.events()...); !strings.Contains(content(t, all), `x="0.00%" width="1100.00%"`) {
			t.Error("the hold is not drawn again after these 10 minutes")
		}
		cancel()
		<-done
	})
}
