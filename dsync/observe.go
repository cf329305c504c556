package dsync

import (
	"context"
	"errors"
	"time"
)

// Load returns what the store knows of key. The error is ctx's, [ErrClosed],
// [ErrKey] or the store's.
func (s *Session) Load(ctx context.Context, key string) (State, error) {
	if err := CheckKey(key); err != nil {
		return State{}, err
	}
	return await(ctx, s, call(s, "Load", func(ctx context.Context) (State, error) {
		return s.store.Load(ctx, key)
	}))
}

// maxRead is of how many sessions one command reads.
const maxRead = 1000

// Members returns the sessions with these ids, without ids all that are alive, at
// most 1,000, and the store's time of the reading, of more than 1,000 ids that of
// the last. Unknown ids are left out.
func (s *Session) Members(ctx context.Context, ids ...string) (members []Member, now time.Time, err error) {
	for some := 0; some == 0 || some < len(ids); some += maxRead {
		m, at, err := s.readSome(ctx, "Members", s.store.Members, ids[some:min(some+maxRead, len(ids))])
		if err != nil {
			return nil, time.Time{}, err
		}
		members, now = append(members, m...), at
	}
	return members, now, nil
}

// readSome reads up to maxRead sessions with one command.
func (s *Session) readSome(ctx context.Context, op string, read func(context.Context, ...string) ([]Member, time.Time, error),
	ids []string) ([]Member, time.Time, error) {
	type reading struct {
		members []Member
		now     time.Time
	}
	r, err := await(ctx, s, call(s, op, func(ctx context.Context) (reading, error) {
		m, now, err := read(ctx, ids...)
		return reading{m, now}, err
	}))
	return r.members, r.now, err
}

// Observe calls f, one call at a time, with the state of key: with the present
// one, after each change, and now and then. Changes that come fast are merged;
// the latest is never left out. Where the store pushes, a change is seen within a
// round trip or two, else by polling every [Options].Poll. An error is passed to
// f with the last state that was known.
//
// It returns at once; end is called when f will not be called again, which is soon
// after ctx or the session has ended. The session registers with the store for it,
// and is found by [Session.Observers] meanwhile. f and end must not wait for the
// session's end.
//
// The store is told in the background of what begins and ends to be observed, one
// command for what comes at about the same time. The list of the keys is a part of the
// session's record: on MongoDB 4.4, which logs a record whole with each heartbeat, the
// keys' length is a part of the price of a heartbeat.
func (s *Session) Observe(ctx context.Context, key string, f func(State, error), end func()) {
	if !s.spawn(func() {
		defer end()
		s.note(key, 1)
		defer s.note(key, -1)
		s.observe(ctx, key, f)
	}) {
		end()
	}
}

// Observers returns all sessions that are alive and observe key, in the order of their
// ids. It reads them a thousand at a time, which passes over the records of all sessions
// of the store. Errors are ctx's, [ErrClosed], [ErrKey] or the store's.
func (s *Session) Observers(ctx context.Context, key string) ([]Member, error) {
	const page = 1000
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	var all []Member
	for after := ""; ; {
		found, err := await(ctx, s, call(s, "Observers", func(ctx context.Context) ([]Member, error) {
			return s.store.Observers(ctx, key, after, page)
		}))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if len(found) < page {
			return all, nil
		}
		after = found[page-1].ID
	}
}

// Line returns all claims in line for key, in their order; [Session.Load] has the first
// 1,000. Errors are those of Load.
func (s *Session) Line(ctx context.Context, key string) ([]Waiter, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return await(ctx, s, call(s, "Line", func(ctx context.Context) ([]Waiter, error) {
		return s.store.Line(ctx, key)
	}))
}

func (s *Session) observe(ctx context.Context, key string, f func(State, error)) {
	retry := s.backoff()
	var st State
	for {
		p, err := s.present(ctx)
		if err == nil {
			p.announce()
			err = p.follow(ctx, key, func(now State) {
				retry.reset()
				st = now
				f(st, nil)
			})
			if errors.Is(err, errOver) {
				continue
			}
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		f(st, err)
		if s.sleep(ctx, retry.next()) != nil {
			return
		}
	}
}

// follow calls f with the state of key until an error ends it. errOver: the
// presence was lost.
func (p *presence) follow(ctx context.Context, key string, f func(State)) error {
	changed := p.observe(key)
	defer p.unobserve(key, changed)
	for d := time.Duration(0); ; {
		if err := p.await(ctx, changed, d); err != nil {
			return err
		}
		st, err := p.s.Load(ctx, key)
		if err != nil {
			return err
		}
		f(st)
		p.s.mu.Lock()
		d = p.pollTime(1)
		p.s.mu.Unlock()
	}
}

// await waits for a change, for d at the most. An error ends the wait; errOver: the
// presence was lost.
func (p *presence) await(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
		return nil
	case <-t.C:
		return nil
	case <-p.over:
		return errOver
	case <-ctx.Done():
		return ctx.Err()
	case <-p.s.closing:
		return ErrClosed
	}
}
