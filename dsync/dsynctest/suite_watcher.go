package dsynctest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A watcher runs one Watch and keeps what it reports.
type watcher struct {
	e      *env
	cancel context.CancelFunc
	done   chan struct{} // closed when Watch has returned err
	err    error
	notify chan struct{} // has a token if there is something new

	mu     sync.Mutex
	events []dsync.Event
}

// watch starts a Watch and waits for its first event. It returns nil if the
// store can't push.
func (e *env) watch(session string, keys ...string) *watcher {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	w := &watcher{e: e, cancel: cancel, done: make(chan struct{}), notify: make(chan struct{}, 1)}
	e.wg.Go(func() {
		defer close(w.done)
		w.err = e.store.Watch(ctx, session, keys, w.add)
	})
	if w.wait(func([]dsync.Event) bool { return true }) {
		return w
	}
	select {
	case <-w.done:
		if errors.Is(w.err, errors.ErrUnsupported) {
			return nil
		}
		e.Fatalf("Watch: %v, before its first event", w.err)
	default:
		e.Fatalf("Watch: no event within %v", patience)
	}
	return nil
}

func (w *watcher) add(event dsync.Event) {
	w.mu.Lock()
	w.events = append(w.events, event)
	w.mu.Unlock()
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// seen returns the events so far.
func (w *watcher) seen() []dsync.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[:len(w.events):len(w.events)]
}

// wait waits until ok is true of the events, of which there are some, and
// reports whether it became true before the Watch ended or patience did.
func (w *watcher) wait(ok func([]dsync.Event) bool) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		if events := w.seen(); len(events) > 0 && ok(events) {
			return true
		}
		select {
		case <-w.notify:
		case <-w.done:
			events := w.seen()
			return len(events) > 0 && ok(events)
		case <-timeout.C:
			return false
		}
	}
}

// wantGrant waits for the grant of c and checks that it is the truth.
func (w *watcher) wantGrant(c dsync.Claim) {
	w.e.Helper()
	var grant dsync.Event
	found := w.wait(func(events []dsync.Event) bool {
		for _, event := range events {
			if event.Type == dsync.EventGrant && event.Claim == c.ID {
				grant = event
				return true
			}
		}
		return false
	})
	if !found {
		w.e.Fatalf("no event for the grant of %s; events: %+v", c.ID, w.seen())
	}
	s := w.e.load(c.Key)
	h, ok := s.Holder(c.ID)
	if grant.Key != c.Key || !ok || grant.Token != h.Token {
		w.e.Errorf("event %+v; the claim on key %q holds: %t, with token %d", grant, c.Key, ok, h.Token)
	}
	if s.Limit == 1 && grant.Term != s.Term {
		w.e.Errorf("event %+v; the grant's term is %d", grant, s.Term)
	}
}

// wantOnly checks that there was no event of other claims than these, nor comes
// one right behind.
func (w *watcher) wantOnly(claims ...dsync.Claim) {
	w.e.Helper()
	time.Sleep(20 * time.Millisecond)
	mine := make(map[string]bool)
	for _, c := range claims {
		mine[c.ID] = true
	}
	for _, event := range w.seen() {
		if event.Type == dsync.EventGrant && !mine[event.Claim] {
			w.e.Errorf("event %+v of another session", event)
		}
	}
}

// told reports whether there was an event of this type, key and claim.
func told(events []dsync.Event, t dsync.EventType, key, claim string) bool {
	for _, event := range events {
		if event.Type == t && event.Key == key && event.Claim == claim {
			return true
		}
	}
	return false
}

// wantTold waits for an event of a claim.
func (w *watcher) wantTold(t dsync.EventType, key, claim string) {
	w.e.Helper()
	if !w.wait(func(events []dsync.Event) bool { return told(events, t, key, claim) }) {
		w.e.Fatalf("no event of type %d for %s on key %q; events: %+v", t, claim, key, w.seen())
	}
}

// wantUntold checks that there was no event of the type but of these claims,
// nor comes one right behind.
func (w *watcher) wantUntold(t dsync.EventType, but ...dsync.Claim) {
	w.e.Helper()
	time.Sleep(20 * time.Millisecond)
	ids := claimIDs(but)
	for _, event := range w.seen() {
		if event.Type == t && !slices.Contains(ids, event.Claim) {
			w.e.Errorf("event %+v that is not for this session, or not so", event)
		}
	}
}
