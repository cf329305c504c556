package measure

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// together is how many sessions join a crowd at a time. If all joined at once, they would overload
// the server.
const together = 20

// A Crowd is many sessions waiting in the queue of one key. All share one client, and each has its
// own listener. They send no heartbeats or polls, because those are not part of a release. The
// target must be Counted.
type Crowd struct {
	many *many
	ring *Ring
	left int
}

// NewCrowd returns when all sessions but the holder are in the queue and the sessions no longer
// send commands.
func NewCrowd(ctx context.Context, t *Target, sessions int) (_ *Crowd, err error) {
	const never = 10 * time.Minute
	m, err := newMany(ctx, t, dsync.Options{TTL: never, PollInterval: never, Retention: -1})
	if err != nil {
		return nil, err
	}
	ring := newRing(ctx, m, "crowd", sessions)
	ring.Leave = true
	c := &Crowd{m, ring, sessions - 1}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for i := range sessions {
		if err := ring.add(ctx); err != nil {
			return nil, err
		}
		if i%together == 0 || i == c.left {
			if err := c.queued(ctx, i); err != nil {
				return nil, err
			}
		}
	}
	for before := -1; before != t.Commands() && ctx.Err() == nil; time.Sleep(time.Second) {
		before = t.Commands()
	}
	return c, ctx.Err()
}

// queued waits until n sessions are in the queue.
func (c *Crowd) queued(ctx context.Context, n int) error {
	for {
		state, err := c.many.store.Load(ctx, c.ring.key, 1000)
		if err != nil || state.Waiting == n {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Left returns how many sessions are waiting.
func (c *Crowd) Left() int { return c.left }

// Release is the [Op] that measures from the call of Unlock until the next session has the key. The
// former holder does not wait for the key again.
func (c *Crowd) Release(ctx context.Context) (time.Duration, error) {
	c.left--
	return c.ring.HandOff(ctx)
}

// Close closes the sessions and the client.
func (c *Crowd) Close() {
	c.ring.Close()
	c.many.end()
}
