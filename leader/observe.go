package leader

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Leader is who leads. The zero Leader, without a Session, is nobody.
type Leader struct {
	Term    int64
	Token   int64
	Session string // id of its session
	Name    string // the identity that it shows, and so on: "" if it shows none
	Host    string
	PID     int
	Since   time.Time // by the store's clock
	Value   []byte    // what it has published, nil if nothing
}

// Leader returns who leads now, or [ErrNoLeader]. A leader that has died leads
// until its lease is over by the store's clock. Other errors are ctx's,
// dsync.ErrClosed or the store's.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	st, err := e.s.Load(ctx, e.name)
	if err != nil {
		return Leader{}, fmt.Errorf("leader: %q: %w", e.name, err)
	}
	l, err := e.leader(ctx, st)
	if err != nil {
		return Leader{}, fmt.Errorf("leader: %q: %w", e.name, err)
	}
	if l.Session == "" {
		return l, fmt.Errorf("leader: %q: %w", e.name, ErrNoLeader)
	}
	return l, nil
}

// leader returns who leads by st.
func (e *Election) leader(ctx context.Context, st dsync.State) (Leader, error) {
	if len(st.Holders) == 0 {
		return Leader{}, nil
	}
	h := st.Holders[0]
	members, now, err := e.s.Members(ctx, h.Session)
	switch {
	case err != nil:
		return Leader{}, err
	case !h.Until.IsZero() && !now.Before(h.Until):
		return Leader{}, nil
	case len(members) == 0 || members[0].Dead || !now.Before(members[0].At.Add(members[0].TTL)):
		return Leader{}, nil
	}
	m := members[0]
	return Leader{
		Term: st.Term, Token: h.Token, Session: h.Session,
		Name: m.Name, Host: m.Host, PID: m.PID, Since: h.Since, Value: st.Value,
	}, nil
}

// Observe returns a channel of who leads, the zero Leader while nobody does: now, and
// after each change, of the leader or of what it has published. It has room for one;
// what was not received in time is replaced by what is newer. It is closed when ctx or
// the session ends. The process is a member meanwhile: see [Election.Members]. Where a
// heartbeat is logged whole, as by MongoDB 4.4, the election's name is a part of the
// price of each heartbeat for as long.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	e.look()
	ch := make(chan Leader, 1)
	first, last := true, Leader{}
	e.s.Observe(ctx, e.name, func(st dsync.State, err error) {
		if err != nil {
			return // it goes on; the session's hooks have heard of it
		}
		l, err := e.leader(ctx, st)
		if err != nil || !first && same(l, last) {
			return
		}
		first, last = false, l
		select {
		case <-ch:
		default:
		}
		ch <- l // there is room: nobody else sends
	}, func() { close(ch) })
	return ch
}

// same reports whether who leads, in which term, and the value are the same: no two
// terms have one token, and nobody has none.
func same(a, b Leader) bool {
	return a.Token == b.Token && bytes.Equal(a.Value, b.Value)
}
