package dsynchttp

import (
	"container/list"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// The limits of what is recorded.
const (
	maxKeys  = 1000
	maxSpans = 16 // the most spans that are kept for each key
)

// A recorder remembers the most recent holds of keys. It learns of this process's holds from its session's hooks, and
// of other processes' holds when the store is read for the page.
type recorder struct {
	maxKeys, maxSpans int

	mu     sync.Mutex
	tracks map[string]*list.Element // the elements of recent, by key
	recent list.List                // values are *track, the most recently changed first
	colors map[string]int           // by session; the sessions are numbered in the order in which they appeared
}

// A track is the record of one key.
type track struct {
	key       string
	exclusive bool   // the key has one holder at a time
	spans     []span // in the order in which they were recorded
}

func newRecorder(maxKeys, maxSpans int) *recorder {
	return &recorder{maxKeys: maxKeys, maxSpans: maxSpans, tracks: make(map[string]*list.Element), colors: make(map[string]int)}
}

// hooks returns the hooks that record the holds of this process.
func (r *recorder) hooks() *dsync.Hooks {
	ended := func(key string, token int64, held time.Duration, lost string) {
		now := time.Now()
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.trackLocked(key)
		for i := range t.spans {
			if o := &t.spans[i]; o.own() && o.token == token {
				o.end, o.seen, o.lost = now, now, lost
				return
			}
		}
		o := ownSpan(token, now.Add(-held))
		o.end, o.seen, o.lost = now, now, lost
		r.addLocked(t, o)
	}
	return &dsync.Hooks{
		Granted: func(g dsync.HoldInfo) {
			r.mu.Lock()
			defer r.mu.Unlock()
			t := r.trackLocked(g.Key)
			t.exclusive = exclusive(g.Kind)
			r.addLocked(t, ownSpan(g.Token, time.Now()))
		},
		Released: func(o dsync.HoldInfo) { ended(o.Key, o.Token, o.Held, "") },
		Lost: func(l dsync.HoldInfo) {
			lost := l.Cause.Error()
			if l.ByHolder {
				lost = ""
			}
			ended(l.Key, l.Token, l.Held, lost)
		},
	}
}

// ownSpan returns a span for a hold of this process.
func ownSpan(token int64, start time.Time) span {
	return span{who: ownName(), token: token, start: start}
}

func ownName() string { return fmt.Sprintf("this process (%d)", os.Getpid()) }

// trackLocked returns the track of key. If the key has no track, it creates one. If there are then too many tracks, it
// removes the one whose last change is oldest.
func (r *recorder) trackLocked(key string) *track {
	if place := r.tracks[key]; place != nil {
		r.recent.MoveToFront(place)
		return place.Value.(*track)
	}
	if r.recent.Len() >= r.maxKeys {
		oldest := r.recent.Remove(r.recent.Back()).(*track)
		delete(r.tracks, oldest.key)
	}
	t := &track{key: key}
	r.tracks[key] = r.recent.PushFront(t)
	return t
}

// addLocked adds a span to t, and removes the oldest if there are too many.
func (r *recorder) addLocked(t *track, s span) {
	if len(t.spans) >= r.maxSpans {
		t.spans = slices.Delete(t.spans, 0, len(t.spans)-r.maxSpans+1)
	}
	t.spans = append(t.spans, s)
}

// see records the status of a key, which was read at the given time.
func (r *recorder) see(now time.Time, st admin.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tracks[st.Key] == nil && len(st.Holders) == 0 {
		return
	}
	t := r.trackLocked(st.Key)
	local := func(at time.Time) time.Time { return now.Add(at.Sub(st.Now)) } // converts the store's time to this host's
	held := make(map[string]bool)
	next := now // the earliest start of a current hold
	for _, h := range st.Holders {
		held[h.Claim] = true
		if since := local(h.Since); since.Before(next) {
			next = since
		}
	}
	for i := range t.spans {
		if o := &t.spans[i]; !o.own() && o.end.IsZero() && !held[o.claim] {
			end := next
			if next.Before(o.seen) || !exclusive(st.Kind) {
				end = now
			}
			o.setEnded(end)
		}
	}
	for _, h := range st.Holders {
		if t.knows(h) {
			continue
		}
		i := slices.IndexFunc(t.spans, func(s span) bool { return s.claim == h.Claim })
		if i < 0 {
			r.addLocked(t, span{who: h.String(), session: h.Session, claim: h.Claim, token: h.Token, start: local(h.Since)})
			i = len(t.spans) - 1
		}
		t.spans[i].setHeld(h, now, local(h.Until))
	}
	t.exclusive = exclusive(st.Kind)
}

func exclusive(k driver.Kind) bool { return k != driver.KindRWMutex && k != driver.KindSemaphore }

// knows reports whether a hook has reported the hold as a hold of this process. The hook may have reported the hold's
// token, or another token that the store reserves for hand-offs within the process (see driver.Store).
func (t *track) knows(h admin.Participant) bool {
	room := int64(1 << 10)
	if h.Yields {
		room = 1 << 16
	}
	return slices.ContainsFunc(t.spans, func(s span) bool { return s.own() && h.Token <= s.token && s.token < h.Token+room })
}

// of returns a key's spans, ordered by start. If the key has one holder at a time, each span is cut off at the start of
// the next one, because its end may have been noticed late.
func (r *recorder) of(key string) []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	element := r.tracks[key]
	if element == nil {
		return nil
	}
	t := element.Value.(*track)
	all := slices.Clone(t.spans)
	slices.SortStableFunc(all, func(a, b span) int { return a.start.Compare(b.start) })
	for i := range all[:max(0, len(all)-1)] {
		if next := all[i+1].start; t.exclusive && all[i].until(next.Add(1)).After(next) {
			all[i].end = next
		}
	}
	return all
}

// color returns the style of a session: one of eight colours or, with alt, a darker or brighter variant of that colour.
// A session keeps its style until a thousand sessions have been seen. If two sessions with the same style are next to
// each other on a timeline, one of them is outlined.
func (r *recorder) color(session string) string {
	const most, styles = 1000, 8
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.colors[session]
	if !ok {
		if len(r.colors) >= most {
			clear(r.colors)
		}
		n = len(r.colors)
		r.colors[session] = n
	}
	if n%(2*styles) >= styles {
		return fmt.Sprintf("c%d alt", n%styles)
	}
	return fmt.Sprintf("c%d", n%styles)
}

// A span is a hold of a key as this process has seen it. Its times are by this host's clock.
type span struct {
	who     string // the holder's process, for display
	session string // "" for a hold of this process that a hook reported
	claim   string // "" for a hold of this process that a hook reported
	token   int64
	start   time.Time
	seen    time.Time // when the hold was last seen, or ended
	end     time.Time // when the hold ended, or the latest time at which it can have ended; zero: not over
	lost    string    // why the hold was lost; "" if it was not lost, or if the reason is unknown

	planned time.Time // as last seen, its fixed end; zero: it ends with its session
	lapses  time.Time // as last seen, when it ends if its session sends no other heartbeat
	silent  bool      // when last seen, its session had sent no heartbeat for half of its TTL
}

// own reports whether the span is a hold of this process that a hook reported.
func (s *span) own() bool { return s.claim == "" }

// until returns the end of the span, or now if the span has not ended.
func (s *span) until(now time.Time) time.Time {
	if s.end.IsZero() {
		return now
	}
	return s.end
}

// setHeld records that h holds the key at the given time. The last argument is the end of the hold, by this host's
// clock.
func (s *span) setHeld(h admin.Participant, now, until time.Time) {
	s.seen, s.end, s.lost = now, time.Time{}, ""
	if !h.Renewed {
		s.planned, s.silent = until, false
		return
	}
	s.planned, s.lapses, s.silent = time.Time{}, until, until.Sub(now) < h.TTL/2
	if h.Lapsed {
		s.lapse()
	}
}

// setEnded records that the hold ended no later than the given time, and no later than planned. If the holder's session
// was silent when last seen, and the key became free only when the hold had lapsed, then the session has expired. After
// a release, the key would have been free earlier.
func (s *span) setEnded(at time.Time) {
	if s.end = at; !s.planned.IsZero() && at.After(s.planned) {
		s.end = s.planned
	}
	if s.silent && !at.Before(s.lapses) {
		s.lapse()
	}
}

// lapse ends the span because its session has lapsed.
func (s *span) lapse() { s.seen, s.end, s.lost = s.lapses, s.lapses, "its session lapsed" }

// clock formats a time for display, in UTC like all times of this module.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// String describes the span, for display.
func (s *span) String() string {
	text := fmt.Sprintf("%s, token %d, from %s", s.who, s.token, clock(s.start))
	switch {
	case s.lost != "":
		return fmt.Sprintf("%s, lost at %s: %s", text, clock(s.end), s.lost)
	case s.end.IsZero():
		return text + " on"
	}
	return fmt.Sprintf("%s to %s", text, clock(s.end))
}
