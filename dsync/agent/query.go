package agent

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A query has the parameters of a request. A parameter that is missing is the zero value, except wait.
type query struct {
	key        string // or the name of an election
	wait       time.Duration
	limit      time.Duration
	mode       string
	of, n      int64
	tick       int64
	value      string
	preference int
}

// forever is the wait of a request that does not limit it.
const forever = time.Duration(-1)

// parseQuery returns the parameters of r, of which only those in params are allowed.
func parseQuery(r *http.Request, params string) (q query, err error) {
	if q.key = r.PathValue("key"); q.key != "" {
		if err := dsync.CheckKey(q.key); err != nil {
			return q, err
		}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, fmt.Errorf("the query can't be read: %w", err)
	}
	known := strings.Fields(params)
	q.wait = forever
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return q, fmt.Errorf("there is no parameter %q here; there are: %s", name, strings.Join(known, ", "))
		case len(all) > 1:
			return q, fmt.Errorf("the parameter %s is given %d times; give it once", name, len(all))
		}
		if err := q.set(name, all[0]); err != nil {
			return q, err
		}
	}
	return q, q.check(values)
}

func (q *query) set(name, value string) (err error) {
	switch name {
	case "wait":
		q.wait, err = time.ParseDuration(value)
		if err != nil || q.wait < 0 {
			return fmt.Errorf("wait is %q; it must be a duration such as 30s, or 0s for a try", value)
		}
	case "limit":
		q.limit, err = time.ParseDuration(value)
		if err != nil || q.limit <= 0 || q.limit > driver.MaxDuration {
			return fmt.Errorf("limit is %q; it must be a duration such as 1m", value)
		}
	case "mode":
		if q.mode = value; value != "shared" && value != "exclusive" {
			return fmt.Errorf("mode is %q; it must be shared or exclusive, or left out for a mutex", value)
		}
	case "tick":
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return fmt.Errorf("tick is %q; it must be a time such as 2026-11-01T02:00:00Z", value)
		}
		if q.tick, err = engine.TickAt(at); err != nil {
			return err
		}
	case "value":
		if q.value = value; len(value) > driver.MaxClaimValue {
			return fmt.Errorf("value has %d bytes; it may have at most %d", len(value), driver.MaxClaimValue)
		}
	case "preference":
		if q.preference, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("preference is %q; it must be a whole number", value)
		}
	case "of", "n":
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil || number < 1 {
			return fmt.Errorf("%s is %q; it must be a whole number, at least 1", name, value)
		}
		if name == "of" {
			q.of = number
		} else {
			q.n = number
		}
	}
	return nil
}

// check returns an error if parameters that are right in themselves are not right together.
func (q *query) check(given url.Values) error {
	switch {
	case q.mode != "" && q.of+q.n > 0:
		return fmt.Errorf("mode is for a reader/writer lock, of and n for a semaphore; choose one")
	case q.n > 0 && q.of == 0:
		return fmt.Errorf("n is %d, but of is missing; of is the size of the semaphore, for example of=%d", q.n, q.n)
	case q.n > q.of:
		return fmt.Errorf("n is %d, more than the semaphore's size, which is of=%d", q.n, q.of)
	}
	return nil
}

// lockWant returns what a request for a lock wants to hold.
func (q *query) lockWant() engine.Want {
	w := engine.Whole(q.key, driver.KindMutex)
	switch {
	case q.of > 0:
		w.Kind, w.Weight, w.Limit = driver.KindSemaphore, max(q.n, 1), q.of
	case q.mode == "shared":
		w.Kind, w.Limit = driver.KindRWMutex, engine.RWLimit
	case q.mode == "exclusive":
		w.Kind, w.Weight, w.Limit = driver.KindRWMutex, engine.RWLimit, engine.RWLimit
	}
	return w
}
