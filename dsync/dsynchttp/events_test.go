package dsynchttp_test

import (
	"context"
	"net/http"
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
			t.Fatalf("at first there are %q", all)
		}
		for line := range strings.Lines(all[0] + "\n") {
			if !strings.HasPrefix(line, "data: ") && line != "event: content\n" {
				t.Errorf("a line of the event is %q", line)
			}
		}
		time.Sleep(7 * time.Second) // never at the moment of a look
		if all = s.events(); len(all) != 0 {
			t.Errorf("without a change there are %q", all)
		}
		time.Sleep(time.Minute)
		if all = s.events(); len(all) < 5 || strings.Join(all, "") != strings.Repeat(":", len(all)) {
			t.Errorf("after a minute without a change there are %q, want a sign of life now and then", all)
		}
		mu := other.Mutex("k")
		lock(t, mu)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all = s.events(); len(all) != 1 || !strings.Contains(all[0], "other") {
			t.Errorf("when it is locked there are %d events: %.300q", len(all), all)
		}
		if got := s.Header().Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("it is %s", got)
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newSession(t, dsynctest.NewMemory(), nil)
				h := newPage(t, s, nil)
				lock(t, s.Mutex("k"))
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				_, done := follow(h, ctx, "/events")
				time.Sleep(time.Minute)
				select {
				case <-done:
					t.Error("it ended by itself")
				default:
				}
				end(cancel, h, s)
				select {
				case <-done:
				case <-time.After(2 * time.Second):
					t.Error("it goes on")
				}
			})
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
			t.Errorf("the 17th stream is answered with %d, want 503", w.Code)
		}
		cancel()
		for _, done := range streams {
			<-done
		}
		ctx, cancel = context.WithCancel(background)
		s, done := follow(h, ctx, "/events")
		synctest.Wait()
		if all := s.events(); len(all) != 1 {
			t.Errorf("after the others have gone there are %q", all)
		}
		cancel()
		<-done
	})
}
