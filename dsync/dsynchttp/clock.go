package dsynchttp

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// An anchor is the moment for which ages and timelines are rendered. A stream of events uses one anchor for many
// readings, and the page's script adds the time since the anchor. If each reading had its own anchor, the whole page
// would change with each event and would have to be sent again.
type anchor struct {
	host  time.Time // by this host's clock
	store time.Time // the same moment by the store's clock; zero: not known yet
}

// A stream replaces its anchor when the anchor is older than horizon times the timeline's window.
const horizon = 10

// at returns the anchor for a reading at the given time: a itself, or a new anchor if a is zero or too old.
func (a anchor) at(now time.Time, window time.Duration) anchor {
	if a.host.IsZero() || now.Sub(a.host) > horizon*window {
		return anchor{host: now}
	}
	return a
}

// saw sets a.store, unless it is already known. The arguments are the same moment, by the store's clock and by the
// host's.
func (a *anchor) saw(store, now time.Time) {
	if a.store.IsZero() && !store.IsZero() {
		a.store = store.Add(a.host.Sub(now))
	}
}

// An age is the time from the start of something to the anchor. It is negative if the start is
// after the anchor.
type age time.Duration

// String returns the age in readable form.
func (a age) String() string { return statusjson.Milliseconds(a).String() }

// MS returns the age in milliseconds, for the script.
func (a age) MS() int64 { return time.Duration(a).Milliseconds() }
