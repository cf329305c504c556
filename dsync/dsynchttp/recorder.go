package dsynchttp

import (
	"container/list"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// Bounds of what is recorded.
const (
	maxKeys  = 1000
	maxSpans = 16 // of each key
)

// A recorder remembers the last holds of keys: of this process from its session's
// hooks, of others from what is read for somebody who looks.
type recorder struct {
	maxKeys, maxSpans int

	mu     sync.Mutex
	tracks map[string]*list.Element // of *track, by key
	recent list.List                // the track that changed last first
	colors map[string]int           // by session, in the order in which they were seen
}

// A track is what is recorded of one key.
type track struct {
	key       string
	exclusive bool   // one holds at a time
	spans     []span // in the order in which they were recorded
}

func newRecorder(maxKeys, maxSpans int) *recorder {
	return &recorder{maxKeys: maxKeys, maxSpans: maxSpans, tracks: make(map[string]*list.Element), colors: make(map[string]int)}
}

// hooks returns what records the holds of this process.
func (r *recorder) hooks() *dsync.Hooks {
	ended := func(key string, token int64, held time.Duration, lost string) {
		now := time.Now()
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.track(key)
		for i := range t.spans {
			if o := &t.spans[i]; o.own() && o.token == token {
				o.end, o.seen, o.lost = now, now, lost
				return
			}
		}
		o := ownSpan(token, now.Add(-held))
		o.end, o.seen, o.lost = now, now, lost
		r.add(t, o)
	}
	return &dsync.Hooks{
		Granted: func(g dsync.Grant) {
			r.mu.Lock()
			defer r.mu.Unlock()
			t := r.track(g.Key)
			t.exclusive = exclusive(g.Kind)
			r.add(t, ownSpan(g.Token, time.Now()))
		},
		Released: func(o dsync.Release) { ended(o.Key, o.Token, o.Held, "") },
		Lost: func(l dsync.Loss) {
			lost := l.Cause.Error()
			if l.Drained {
				lost = ""
			}
			ended(l.Key, l.Token, l.Held, lost)
		},
	}
}

// ownSpan returns a span of this process.
func ownSpan(token int64, start time.Time) span {
	return span{who: ownName(), token: token, start: start}
}

func ownName() string { return fmt.Sprintf("this process (%d)", os.Getpid()) }

// track returns the track of key, and makes one in place of what changed least
// recently. r.mu must be held.
func (r *recorder) track(key string) *track {
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

// add adds a span in place of the oldest. r.mu must be held.
func (r *recorder) add(t *track, s span) {
	if len(t.spans) >= r.maxSpans {
		t.spans = slices.Delete(t.spans, 0, len(t.spans)-r.maxSpans+1)
	}
	t.spans = append(t.spans, s)
}

// see takes in the status of a key that was read at now.
func (r *recorder) see(now time.Time, st dsync.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tracks[st.Key] == nil && len(st.Holders) == 0 {
		return
	}
	t := r.track(st.Key)
	local := func(at time.Time) time.Time { return now.Add(at.Sub(st.Now)) } // whatever this host's clock is
	held := make(map[string]bool)
	next := now // when the first began of those that hold now
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
			o.ends(end)
		}
	}
	for _, h := range st.Holders {
		if t.knows(h) {
			continue
		}
		i := slices.IndexFunc(t.spans, func(s span) bool { return s.claim == h.Claim })
		if i < 0 {
			r.add(t, span{who: h.String(), session: h.Session, claim: h.Claim, token: h.Token, start: local(h.Since)})
			i = len(t.spans) - 1
		}
		t.spans[i].sees(h, now, local(h.Until))
	}
	t.exclusive = exclusive(st.Kind)
}

func exclusive(k dsync.Kind) bool { return k != dsync.KindRWMutex && k != dsync.KindSemaphore }

// knows reports whether a hook told of the hold, or of one that it was handed on to
// in this process, with one of the tokens that are left for that (see
// [dsync.Store]).
func (t *track) knows(h dsync.Owner) bool {
	room := int64(1 << 10)
	if h.Yields {
		room = 1 << 16
	}
	return slices.ContainsFunc(t.spans, func(s span) bool { return s.own() && h.Token <= s.token && s.token < h.Token+room })
}

// of returns what is recorded of key, in the order of starts. Where one holds at a
// time the end of each is the start of the next at the latest, however late it was
// noticed.
func (r *recorder) of(key string) []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := r.tracks[key]
	if place == nil {
		return nil
	}
	t := place.Value.(*track)
	all := slices.Clone(t.spans)
	slices.SortStableFunc(all, func(a, b span) int { return a.start.Compare(b.start) })
	for i := range all[:max(0, len(all)-1)] {
		if next := all[i+1].start; t.exclusive && all[i].until(next.Add(1)).After(next) {
			all[i].end = next
		}
	}
	return all
}

// color returns the style of a session's process, the same for as long as a
// thousand others were not seen.
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
	return fmt.Sprintf("c%d", n%styles)
}
