package dsynchttp

import (
	"fmt"
	"time"
)

// maxLanes is the greatest number of concurrent holds that are drawn side by side; if there are more, some overlap.
const maxLanes = 4

// Together the lanes are 16 CSS pixels high, in the middle of a timeline of 22 pixels.
const lanesTop, lanesHeight = 3, 16

// A timeline is the drawing of the spans of a key. Horizontal positions are percentages of the window that ends at the
// anchor; vertical positions are in pixels. A span that began after the anchor is drawn beyond 100 %, and the script
// moves it into view as time passes. A span that has not ended is drawn up to the horizon.
type timeline struct {
	Label string
	Bars  []bar
	Hands []string // where the key went from one holder to the next
	Losts []mark   // where a hold was lost
}

// A bar is a part of a span. If it is drawn faint, it is not known whether the key was held during that part.
type bar struct {
	Class    string
	X, Width string
	Y, H     int
	Title    string
}

// A mark is a point on the timeline.
type mark struct {
	X     string
	Y     int
	Title string
}

// newTimeline returns a drawing of those spans that reach into the window before now. spans must be ordered by start;
// color returns the style of a session.
func newTimeline(spans []span, now, anchor time.Time, window time.Duration, color func(session string) string) timeline {
	from := now.Add(-window)
	const end = 100 * (1 + horizon)
	at := func(t time.Time) float64 {
		return min(end, max(0, 100+100*float64(t.Sub(anchor))/float64(window)))
	}
	until := func(s span) float64 {
		if s.end.IsZero() {
			return end
		}
		return at(s.end)
	}
	var shown []span
	for _, s := range spans {
		if s.until(now).After(from) && !s.start.After(now) {
			shown = append(shown, s)
		}
	}
	lanes, n := assignLanes(shown, now)
	height := lanesHeight / max(1, n)
	var t timeline
	ended := make(map[int]float64) // by lane
	last := make(map[int]span)     // by lane
	for i, s := range shown {
		lane := lanes[i]
		class := "own"
		if !s.own() {
			class = color(s.session)
		}
		for beside := lane - 1; beside <= lane+1; beside++ {
			if o, ok := last[beside]; ok && !s.own() && !o.own() && o.session != s.session && color(o.session) == class {
				class += " beside"
				break
			}
		}
		last[lane] = s
		y := lanesTop + lane*height
		title := s.String()
		start, over := at(s.start), until(s)
		solid := over
		if !s.own() && !s.end.IsZero() && s.end.Sub(s.seen) > window/50 {
			solid = at(s.seen)
			t.Bars = append(t.Bars, bar{class + " faint", percent(solid), percent(over - solid), y, height, title})
		}
		t.Bars = append(t.Bars, bar{class, percent(start), percent(solid - start), y, height, title})
		if before, ok := ended[lane]; ok && start-before < 1 && start > 0 {
			t.Hands = append(t.Hands, percent(start))
		}
		ended[lane] = over
		if s.lost != "" {
			t.Losts = append(t.Losts, mark{percent(over), y + height/2, title})
		}
	}
	t.Label = fmt.Sprintf("%s, %s in the last %s", count(len(shown), "hold"), count(len(t.Losts), "loss"), windowTitle(window))
	return t
}

// assignLanes returns the lane of each span and the number of lanes. Concurrent spans get different lanes as long
// as there are enough.
func assignLanes(spans []span, now time.Time) (lanes []int, n int) {
	var free []time.Time // when each lane becomes free
	for _, s := range spans {
		lane := 0
		for lane < len(free) && lane < maxLanes-1 && free[lane].After(s.start) {
			lane++
		}
		if lane == len(free) {
			free = append(free, time.Time{})
		}
		free[lane] = s.until(now)
		lanes = append(lanes, lane)
	}
	return lanes, len(free)
}

func percent(p float64) string { return fmt.Sprintf("%.2f%%", p) }

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what[len(what)-1] == 's':
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
