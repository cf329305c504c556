package dsynctest

import (
	"context"
	"errors"
	"time"
)

// listenCases test Listen and Notify. Of a store that can't notify they test that it says
// so.
func listenCases() []conformanceCase {
	return []conformanceCase{
		{name: "Listen/CallsWhenItHasBegunOrIsUnsupportedAtOnce", test: testListenBegins},
		{name: "Listen/NotifyCalls", test: testListenNotify},
		{name: "Listen/OnlyItsSession", test: testListenOnlyItsSession},
		{name: "Listen/EndsWithItsContext", test: testListenEnds},
		{name: "Notify/NobodyListens", test: testNotifyNobody},
	}
}

// A listening runs one Listen.
type listening struct {
	cancel context.CancelFunc
	calls  chan struct{} // room for one: it was called since that was taken
	done   chan struct{} // closed when Listen has returned err
	err    error
}

// listen starts a Listen and waits for its first call. It returns nil if the store can't
// notify.
func (e *env) listen(session string) *listening {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	l := &listening{cancel: cancel, calls: make(chan struct{}, 1), done: make(chan struct{})}
	e.wg.Go(func() {
		defer close(l.done)
		l.err = e.store.Listen(ctx, session, func() {
			select {
			case l.calls <- struct{}{}:
			default:
			}
		})
	})
	if l.called(patience) {
		return l
	}
	select {
	case <-l.done:
		if !errors.Is(l.err, errors.ErrUnsupported) {
			e.Fatalf("Listen: %v, before its first call", l.err)
		}
	default:
		e.Fatalf("Listen: no call within %v", patience)
	}
	return nil
}

// called reports whether there is a call within d.
func (l *listening) called(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.calls:
		return true
	case <-l.done:
	case <-t.C:
	}
	return false
}

// notify calls Notify.
func (e *env) notify(session string) {
	e.Helper()
	if err := e.store.Notify(e.ctx, session); err != nil {
		e.Errorf("Notify(%q): %v", session, err)
	}
}

func testListenBegins(e *env) {
	start := time.Now()
	if l := e.listen(e.session()); l == nil && time.Since(start) > patience/3 {
		e.Errorf("Listen took %v to say that it is not supported", time.Since(start))
	}
}

func testListenNotify(e *env) {
	session := e.session()
	l, other := e.listen(session), e.listen(session)
	if l == nil {
		return
	}
	for range 3 {
		e.notify(session)
		if !l.called(patience) || !other.called(patience) {
			e.Fatalf("no call of one who listens within %v after Notify", patience)
		}
	}
}

func testListenOnlyItsSession(e *env) {
	session, other := e.session(), e.session()
	l, o := e.listen(session), e.listen(other)
	if l == nil {
		return
	}
	e.notify(other)
	if !o.called(patience) {
		e.Errorf("no call within %v after Notify", patience)
	}
	if l.called(50 * time.Millisecond) {
		e.Error("called for another session")
	}
}

func testListenEnds(e *env) {
	l := e.listen(e.session())
	if l == nil {
		return
	}
	l.cancel()
	select {
	case <-l.done:
		if !errors.Is(l.err, context.Canceled) {
			e.Errorf("Listen: %v, want the context's error", l.err)
		}
	case <-time.After(patience):
		e.Errorf("Listen goes on %v after its context has ended", patience)
	}
}

func testNotifyNobody(e *env) {
	e.notify(e.session())
	e.notify(newID()) // a session that was never registered
}
