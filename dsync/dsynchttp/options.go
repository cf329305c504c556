package dsynchttp

import (
	"net/http"
	"time"
)

// Options are the settings of a [Handler]. The zero value of each field is its
// default; a nil *Options is all defaults.
type Options struct {
	// Refresh is how often the store is read for a page that is kept up to date.
	// Default 2 s; less than 100 ms counts as 100 ms.
	Refresh time.Duration

	// Authorize is asked before a lock is broken from the page. It returns nil to
	// allow it; an error refuses it, and is shown. Requests of other sites' pages
	// are refused before that (see [net/http.CrossOriginProtection]), but it must
	// find out who asks: by a client's certificate, or a header that a proxy has
	// set, say. Default nil: nothing can be broken, and the page has no button for it.
	Authorize func(*http.Request) error
}

func (o *Options) withDefaults() Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Refresh == 0 {
		r.Refresh = 2 * time.Second
	}
	r.Refresh = max(r.Refresh, 100*time.Millisecond)
	return r
}
