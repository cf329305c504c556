package leader

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/process"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// A Leader describes who leads. The zero Leader, which has no Session, means that nobody leads.
type Leader struct {
	Term    int64  // the term's number
	Token   int64  // the term's fencing token
	Session string // the id of the leader's session
	Name    string // Name and Host are as in dsync.Options; these and PID are zero if hidden
	Host    string
	PID     int
	Since   time.Time // when it was elected, by the store's clock
	Value   []byte    // the value that it has published; nil: none
}

// String describes the leader for people, or reports that nobody leads. It leaves out the value.
func (l Leader) String() string {
	if l.Session == "" {
		return "nobody leads"
	}
	return fmt.Sprintf("%s, term %d, since %s", process.Describe(l.Name, l.Host, l.PID, l.Session), l.Term, rfc3339.Millis(l.Since))
}

// Leader returns the present leader, or [ErrNoLeader]. A crashed leader is returned until its lease
// is over by the store's clock. Other errors are ctx's, dsync.ErrClosed and the store's.
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

// leader returns the leader according to st, or the zero Leader.
func (e *Election) leader(ctx context.Context, st driver.State) (Leader, error) {
	if len(st.Holders) == 0 {
		return Leader{}, nil
	}
	h := st.Holders[0]
	alive, err := e.alive(ctx, []string{h.Session})
	if err != nil {
		return Leader{}, err
	}
	m, ok := alive[h.Session]
	if !ok || !h.Until.IsZero() { // if Until is set, the leader has resigned or its session is closing
		return Leader{}, nil
	}
	return Leader{
		Term: st.Term, Token: h.Token, Session: h.Session,
		Name: m.Name, Host: m.Host, PID: m.PID, Since: h.Since, Value: st.Value,
	}, nil
}

// Observe returns a channel that receives the present leader, and then each change of the leader or of
// what it has published. The zero Leader means that nobody leads. If a leader crashes and nobody
// campaigns, the zero Leader is received at the first reading after the lease is over, within
// dsync.Options.PollInterval. The channel has room for one value; a newer value replaces one that was
// not received in time. The channel is closed when ctx or the session ends.
//
// While the channel is open, admin.Inspector.Observers lists this process as an observer. MongoDB 4.4 logs the names
// of all observed elections with each heartbeat.
func (e *Election) Observe(ctx context.Context) <-chan Leader {
	var last Leader
	return observe(ctx, e, e.leader, func(now Leader) (changed bool) {
		changed, last = !same(now, last), now
		return changed
	})
}

// observe calls the function read with each state of the election, and then the function changed with the resulting
// value. Both are called from one goroutine. The returned channel receives the first value, and then every value that
// changed reports as a change.
func observe[T any](ctx context.Context, e *Election, read func(context.Context, driver.State) (T, error), changed func(T) bool) <-chan T {
	e.attachHooks()
	ch := make(chan T, 1)
	first := true
	e.s.Observe(ctx, e.name, func(st driver.State, err error) {
		if err != nil {
			return // the process goes on observing, and StoreError has reported the error
		}
		v, err := read(ctx, st)
		if err != nil || !changed(v) && !first {
			return
		}
		first = false
		select {
		case <-ch: // v takes the place of a value that was not received
		default:
		}
		ch <- v // does not block: nobody else sends
	}, func() { close(ch) })
	return ch
}

// same reports whether the leader, its term and its value are the same. It compares tokens instead
// of leader and term, because no two terms have the same token, and token 0 means that nobody
// leads.
func same(a, b Leader) bool {
	return a.Token == b.Token && bytes.Equal(a.Value, b.Value)
}
