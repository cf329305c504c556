package dsync

import (
	"sync"
	"sync/atomic"
	"time"
)

// sayAgain is the interval at which the log repeats that commands of a kind still fail.
const sayAgain = 10 * time.Second

// outages tracks failing commands by kind, for the log. For each kind, the log shows when failures begin, how many
// there have been (every ten seconds), and when they are over. A log record for each failed command would hide
// everything else.
type outages struct {
	failing atomic.Bool // some kind fails; spares commands that succeed the mutex
	mu      sync.Mutex
	kinds   map[string]*outage
}

// An outage counts the failures of one kind of command since the kind began to fail.
type outage struct {
	began, said time.Time
	failed      int
}

// failed counts a failure. say reports whether to log it. more has attributes to add to the log record; the first
// failure has none.
func (o *outages) failed(op string) (say bool, more []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, k := time.Now(), o.kinds[op]
	if k == nil {
		if o.kinds == nil {
			o.kinds = make(map[string]*outage)
		}
		o.kinds[op] = &outage{began: now, said: now, failed: 1}
		o.failing.Store(true)
		return true, nil
	}
	k.failed++
	if now.Sub(k.said) < sayAgain {
		return false, nil
	}
	k.said = now
	return true, k.sum(now)
}

// over ends the outage of the commands named op, if there is one. It returns attributes for the log, or nil if only one
// command failed.
func (o *outages) over(op string) (more []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.kinds[op]
	if k == nil {
		return nil
	}
	delete(o.kinds, op)
	o.failing.Store(len(o.kinds) > 0)
	if k.failed == 1 {
		return nil
	}
	return k.sum(time.Now())
}

func (k *outage) sum(now time.Time) []any {
	return []any{"failed", k.failed, "for", now.Sub(k.began).Round(time.Millisecond)}
}
