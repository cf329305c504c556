package engine

import (
	"sync"
	"time"
)

// sayAgain is how often the log says that commands of one kind still fail.
const sayAgain = 10 * time.Second

// outages are the kinds of commands that fail, for the log: it says of each when that begins, every ten
// seconds how it goes, and when it is over. A line for each attempt would hide everything else.
type outages struct {
	mu    sync.Mutex
	kinds map[string]*outage
}

// An outage is what is known of a kind of commands since the first one failed.
type outage struct {
	began, said time.Time
	failed      int
}

// failed counts a failure. It reports whether the log should say so, and what it should say besides: nothing
// of the first one.
func (o *outages) failed(op string) (say bool, more []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, k := time.Now(), o.kinds[op]
	if k == nil {
		if o.kinds == nil {
			o.kinds = make(map[string]*outage)
		}
		o.kinds[op] = &outage{began: now, said: now, failed: 1}
		return true, nil
	}
	k.failed++
	if now.Sub(k.said) < sayAgain {
		return false, nil
	}
	k.said = now
	return true, k.sum(now)
}

// over ends the outage of that kind, if there is one. It returns what the log should say of it: nothing if
// only one command failed.
func (o *outages) over(op string) (more []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.kinds[op]
	if k == nil {
		return nil
	}
	delete(o.kinds, op)
	if k.failed == 1 {
		return nil
	}
	return k.sum(time.Now())
}

func (k *outage) sum(now time.Time) []any {
	return []any{"failed", k.failed, "for", now.Sub(k.began).Round(time.Millisecond)}
}
