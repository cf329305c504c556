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

// A query is what a request asks to see.
type query struct {
	key           string // "": the overview
	prefix, after string
	n             int
	window        time.Duration
	json          bool
}

// windows are the times that timelines can show.
var windows = []time.Duration{time.Minute, 10 * time.Minute, time.Hour}

// parseQuery returns what r asks for, of one key if single, or an error that says
// what is wrong.
func parseQuery(r *http.Request, single bool) (query, error) {
	q := query{n: 100, window: windows[1]}
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, fmt.Errorf("bad query: %w", err)
	}
	q.key, q.prefix, q.after = v.Get("key"), v.Get("prefix"), v.Get("after")
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

// windowTitle is windowName for people.
func windowTitle(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// values returns q as the query of a link.
func (q query) values() url.Values {
	v := make(url.Values)
	set := func(name, value string, is bool) {
		if is {
			v.Set(name, value)
		}
	}
	set("key", q.key, q.key != "")
	set("prefix", q.prefix, q.prefix != "")
	set("after", q.after, q.after != "")
	set("n", strconv.Itoa(q.n), q.n != 100)
	set("window", windowName(q.window), q.window != windows[1])
	return v
}

// link returns the relative address of what q asks for.
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
