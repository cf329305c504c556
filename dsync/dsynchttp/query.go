package dsynchttp

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A query is a decoded request.
type query struct {
	key           string // "": the overview
	prefix        string
	contains      string
	sort          order
	after         string // the list of keys begins after this key
	mine, members int    // positions at which the list of this process's keys and the list of members begin
	n             int    // the most entries in each list
	window        time.Duration
	json          bool
}

// An order is a way to sort lists.
type order string

const (
	byUse     order = ""        // keys in use first, each group in byte order
	byKey     order = "key"     // in byte order
	byAge     order = "age"     // keys held for the longest time first
	byWaiters order = "waiters" // keys with the most waiters first
)

// maxPosition is far greater than the number of keys that a process can hold; twice its value still
// fits into an int32.
const maxPosition = 100_000_000

// windows are the time spans that timelines can show.
var windows = []time.Duration{time.Minute, 10 * time.Minute, time.Hour}

// parseQuery decodes r, or returns an error if its query is invalid. If single is true, the query
// must name one key.
func parseQuery(r *http.Request, single bool) (query, error) {
	q := query{n: 100, window: windows[1]}
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, fmt.Errorf("bad query: %w", err)
	}
	q.key, q.prefix, q.contains, q.after = v.Get("key"), v.Get("prefix"), v.Get("contains"), v.Get("after")
	if single {
		if err := dsync.CheckKey(q.key); err != nil {
			return q, err
		}
	}
	if s := v.Get("n"); s != "" {
		if q.n, err = strconv.Atoi(s); err != nil || q.n < 1 || q.n > 1000 {
			return q, fmt.Errorf("n is %q; it must be from 1 to 1000", s)
		}
	}
	switch q.sort = order(v.Get("sort")); q.sort {
	case "held":
		q.sort = byUse
	case byUse, byKey, byAge, byWaiters:
	default:
		return q, fmt.Errorf("sort is %q; it must be held, key, age or waiters", q.sort)
	}
	for name, at := range map[string]*int{"mine": &q.mine, "members": &q.members} {
		if s := v.Get(name); s != "" {
			if *at, err = strconv.Atoi(s); err != nil || *at < 0 || *at > maxPosition {
				return q, fmt.Errorf("%s is %q; it must be a position, from 0 to %d", name, s, maxPosition)
			}
		}
	}
	if s := v.Get("window"); s != "" {
		q.window = 0
		for _, w := range windows {
			if s == windowName(w) {
				q.window = w
			}
		}
		if q.window == 0 {
			return q, fmt.Errorf("window is %q; it must be 1m, 10m or 1h", s)
		}
	}
	switch s := v.Get("format"); s {
	case "json":
		q.json = true
	case "html":
	case "":
		accept := r.Header.Get("Accept")
		q.json = strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	default:
		return q, fmt.Errorf("format is %q; it must be html or json", s)
	}
	return q, nil
}

func windowName(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

// windowTitle is like windowName, with the unit as people write it.
func windowTitle(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// values returns the query string of a link to q.
func (q query) values() url.Values {
	v := make(url.Values)
	set := func(name, value string, is bool) {
		if is {
			v.Set(name, value)
		}
	}
	set("key", q.key, q.key != "")
	set("prefix", q.prefix, q.prefix != "")
	set("contains", q.contains, q.contains != "")
	set("sort", string(q.sort), q.sort != byUse)
	set("after", q.after, q.after != "")
	set("mine", strconv.Itoa(q.mine), q.mine > 0)
	set("members", strconv.Itoa(q.members), q.members > 0)
	set("n", strconv.Itoa(q.n), q.n != 100)
	set("window", windowName(q.window), q.window != windows[1])
	return v
}

// matches reports whether q selects key, disregarding q.after.
func (q query) matches(key string) bool {
	if q.key != "" {
		return key == q.key
	}
	return strings.HasPrefix(key, q.prefix) && strings.Contains(key, q.contains)
}

// link returns the relative address of q.
func (q query) link() string {
	path := "./"
	if q.key != "" {
		path = "key"
	}
	if v := q.values(); len(v) > 0 {
		path += "?" + v.Encode()
	}
	return path
}
