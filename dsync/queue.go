package dsync

import (
	"container/list"
	"context"
)

// A queue is the line of this process for one key: whoever has the turn may
// stand in the store's line and hold; the others wait, first come first served.
// It exists while someone has the turn.
type queue struct {
	holder  *hold      // the hold of who has the turn, once granted
	waiting *list.List // of chan struct{}, closed to pass the turn; nil until someone waits
}

// enter waits for the turn on key. An error is ctx's or ErrClosed.
func (s *Session) enter(ctx context.Context, key string) error {
	s.mu.Lock()
	q := s.queues[key]
	if q == nil {
		s.queues[key] = &queue{}
		s.mu.Unlock()
		return nil
	}
	if q.waiting == nil {
		q.waiting = list.New()
	}
	ready := make(chan struct{})
	e := q.waiting.PushBack(ready)
	s.mu.Unlock()

	var err error
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = ErrClosed
	}
	s.mu.Lock()
	select {
	case <-ready:
		// The turn was passed after ctx ended: pass it on.
		s.mu.Unlock()
		s.leave(key)
	default:
		q.waiting.Remove(e)
		s.mu.Unlock()
	}
	return err
}

// tryEnter takes the turn on key if nobody has it. If somebody has, it returns
// their hold, nil while it is not granted.
func (s *Session) tryEnter(key string) (holder *hold, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[key]; q != nil {
		return q.holder, false
	}
	s.queues[key] = &queue{}
	return nil, true
}

// leave passes the turn on key to the next.
func (s *Session) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(key)
}

func (s *Session) leaveLocked(key string) {
	q := s.queues[key]
	q.holder = nil
	if q.waiting == nil || q.waiting.Len() == 0 {
		delete(s.queues, key)
		return
	}
	close(q.waiting.Remove(q.waiting.Front()).(chan struct{}))
}
