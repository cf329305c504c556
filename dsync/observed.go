package dsync

import (
	"context"
	"maps"
	"slices"
	"time"
)

// observed are the keys that a session observes, for [Store.Observe]. Guarded by the
// session's mu.
type observed struct {
	calls  map[string]int // of Observe that go on, by key
	change int64          // how often the set of the keys has changed
}

// note counts a call of Observe in, or out.
func (s *Session) note(key string, d int) {
	s.mu.Lock()
	o := &s.observed
	before := o.calls[key]
	if o.calls == nil {
		o.calls = make(map[string]int)
	}
	if o.calls[key] += d; o.calls[key] == 0 {
		delete(o.calls, key)
	}
	if before == 0 || before+d == 0 {
		o.change++
	}
	p := s.presence
	s.mu.Unlock()
	if p != nil {
		p.announce()
	}
}

// announce has the store told what the session observes, if it has not been, and nobody
// is at it. Keys that are observed one after the other are told together.
func (p *presence) announce() {
	const gather = 5 * time.Millisecond
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.announcing || p.announced == s.observed.change || p.cause != nil || s.finished {
		return
	}
	p.announcing = true
	s.workers.do(func() {
		retry := s.backoff()
		for wait := gather; p.await(s.base, nil, wait) == nil; {
			told, err := p.tell()
			switch {
			case told:
				return
			case err == nil:
				retry.reset()
				wait = gather // it has changed meanwhile
			case isAnswer(err):
				return // under this id it will never be otherwise
			default:
				wait = retry.next()
			}
		}
	})
}

// tell tells the store what the session observes, unless it has been: then it has
// announce begin anew with the next change.
func (p *presence) tell() (told bool, err error) {
	s := p.s
	s.mu.Lock()
	change, keys := s.observed.change, slices.Sorted(maps.Keys(s.observed.calls))
	if p.announced == change {
		p.announcing = false
		s.mu.Unlock()
		return true, nil
	}
	s.mu.Unlock()
	a := command(s, "Observe", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.store.Observe(ctx, p.id, change, keys)
	})
	if a.err == nil {
		s.mu.Lock()
		p.announced = change
		s.mu.Unlock()
	}
	return false, a.err
}
