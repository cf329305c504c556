package dsync

import (
	"sync"
	"sync/atomic"
	"time"
)

// sayAgain is how long the log is silent about a kind of command that keeps failing.
const sayAgain = 10 * time.Second

// outages tracks failing commands by kind, for the log. For each kind, the log shows the first failure and, every ten
// seconds, how many there have been. After more than one failure, it also shows when commands succeed again. A log
// record for each failed command would hide everything else.
type outages struct {
	failing atomic.Bool // some kind fails; if not, a success need not lock mu
	mu      sync.Mutex
	kinds   map[string]*outage
}

// An outage counts the failures of one kind of command since the kind began to fail.
type outage struct {
	began, said time.Time
	failed      int
}

// failed counts a failure and reports whether to log it. It also returns further attributes for the log record: none
// for the first failure.
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

// over ends the outage of the commands named op, if there is one. It returns attributes for the log, or nil if there
// was no outage or only one command failed.
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
