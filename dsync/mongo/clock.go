package mongo

import (
	"sync"
	"time"
)

// A clock is what is known of the server's clock, by what the server itself told. A
// session keeps one as well, of all answers; among them are those of short Acquires,
// whose time is of this one. So that can't be the source of it: it would fall behind by
// a round trip with each.
type clock struct {
	mu      sync.Mutex
	now, at time.Time // the last time that it told, and when that arrived
}

// told notes the server's time of a reply that has just arrived.
func (c *clock) told(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.at = now, time.Now()
}

// reached returns a time that the server's clock has surely reached, zero if it
// never told one. Heartbeats keep it from being far behind.
func (c *clock) reached() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.IsZero() {
		return time.Time{}
	}
	return c.now.Add(time.Since(c.at))
}
