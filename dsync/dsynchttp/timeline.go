package dsynchttp

import (
	"fmt"
	"time"
)

// maxLanes is how many holds at a time are drawn beside each other; more are drawn
// over each other.
const maxLanes = 4

// Lanes share a height of 16 CSS pixels, in the middle of 22.
const lanesTop, lanesHeight = 3, 16

// A timeline is what is drawn of the spans of a key. Positions in time are in
// percent of the window, heights in pixels.
type timeline struct {
	Label string
	Bars  []bar
	Hands []string // where the key was handed over
	Losts []mark   // where a hold was lost
}

// A bar is the part of a span in which it is known to be held, or faint in which it
// is not known.
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

// newTimeline returns what is drawn of the spans, which are in the order of their
// starts, for the window that ends at now; color returns the style of a session.
func newTimeline(spans []span, now time.Time, window time.Duration, color func(session string) string) timeline {
	from := now.Add(-window)
	at := func(t time.Time) float64 {
		return min(100, max(0, 100*float64(t.Sub(from))/float64(window)))
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
	for i, s := range shown {
		lane := lanes[i]
		class := "own"
		if !s.own() {
			class = color(s.session)
		}
		y := lanesTop + lane*height
		title := s.String()
		start, end := at(s.start), at(s.until(now))
		solid := end
		if !s.own() && !s.end.IsZero() && s.end.Sub(s.seen) > window/50 {
			solid = at(s.seen)
			t.Bars = append(t.Bars, bar{class + " faint", percent(solid), percent(end - solid), y, height, title})
		}
		t.Bars = append(t.Bars, bar{class, percent(start), percent(solid - start), y, height, title})
		if before, ok := ended[lane]; ok && start-before < 1 && start > 0 {
			t.Hands = append(t.Hands, percent(start))
		}
		ended[lane] = end
		if s.lost != "" {
			t.Losts = append(t.Losts, mark{percent(end), y + height/2, title})
		}
	}
	t.Label = fmt.Sprintf("%s, %s in the last %s", count(len(shown), "hold"), count(len(t.Losts), "loss"), windowTitle(window))
	return t
}

// assignLanes returns the lane of each span, such that spans at the same time have
// different ones, and the number of lanes.
func assignLanes(spans []span, now time.Time) (lanes []int, n int) {
	var free []time.Time // when each lane is
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
