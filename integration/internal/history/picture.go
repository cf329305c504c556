package history

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// Sizes in pixels.
const (
	marginLeft = 96
	plotWidth  = 1440
	barHeight  = 12
	rowGap     = 6
	headHeight = 64
	axisHeight = 30
	stripGap   = 26
	faultRow   = 11 // each client has two such rows
)

// A picture draws a history. It consists of strips, each of which shows a stretch of time. In a
// strip, each key has a row with its holders, and each client has a row with its faults. Faults
// of the server shade the whole strip.
type picture struct {
	strings.Builder
	from    time.Duration
	stretch time.Duration // time that a strip shows
	keys    []string
	rows    map[string][][]*rules.Hold // by key; holds in the same row don't overlap
	clients []string
	faults  []Span
	found   []rules.Violation
}

// Picture draws the history as SVG and marks the violations.
func (h *History) Picture(w io.Writer, found []rules.Violation) error {
	p := &picture{from: h.begin(), stretch: 30 * time.Second, rows: make(map[string][][]*rules.Hold), faults: h.Faults(), found: found}
	lasted := h.end() - h.begin()
	if lasted > 5*time.Minute {
		p.stretch = time.Minute
	}
	seen := make(map[string]bool)
	for key, holds := range h.Holds() {
		p.keys = append(p.keys, key)
		for _, o := range holds {
			seen[client(o.Process)] = true
			if o.Granted > 0 {
				p.rows[key] = place(p.rows[key], o)
			}
		}
	}
	slices.Sort(p.keys)
	p.clients = slices.Sorted(maps.Keys(seen))

	strips := int(lasted/p.stretch) + 1
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		marginLeft+plotWidth+16, headHeight+strips*(p.height()+stripGap))
	p.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	p.legend()
	for i := range strips {
		p.strip(i)
	}
	p.WriteString("</svg>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// client returns a process's name without the number that counts the client's starts.
func client(process string) string {
	name, _, _ := strings.Cut(process, ".")
	return name
}

// place puts o into the first row in which it overlaps no other hold.
func place(rows [][]*rules.Hold, o *rules.Hold) [][]*rules.Hold {
	for i, row := range rows {
		if over(row[len(row)-1]) <= o.Granted {
			rows[i] = append(row, o)
			return rows
		}
	}
	return append(rows, []*rules.Hold{o})
}

// over returns the time at which the history last mentions a hold.
func over(h *rules.Hold) time.Duration {
	return max(h.Certain(), h.Done, h.Killed)
}

// height returns the height of one strip.
func (p *picture) height() int {
	h := axisHeight
	for _, key := range p.keys {
		h += max(1, len(p.rows[key]))*barHeight + rowGap
	}
	return h + len(p.clients)*(2*faultRow+rowGap)
}

// colors are the clients' colors. Color-blind people can tell them apart.
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#666666"}

func (p *picture) color(process string) string {
	return colors[max(0, slices.Index(p.clients, client(process)))%len(colors)]
}

// shade returns the color of a fault, which depends on the first word of what, or the color
// of a kill.
func shade(what string) string {
	switch {
	case strings.HasSuffix(what, "killed"):
		return "#555"
	case strings.HasPrefix(what, "client"):
		return "#e8b04b"
	case strings.HasPrefix(what, "link"):
		return "#b39ddb"
	}
	return "#f4b6b6"
}

func (p *picture) text(x, y float64, anchor, fill, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, html.EscapeString(text))
}

func (p *picture) rect(x, y, w, h float64, attrs, title string) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s><title>%s</title></rect>`+"\n", x, y, w, h, attrs, html.EscapeString(title))
}

func (p *picture) legend() {
	p.text(marginLeft, 18, "start", "#000", "Who holds which key: bars are holds, in the color of their process; shades are faults. Point at anything to see its description.")
	x := float64(marginLeft)
	item := func(attrs, name string) {
		p.rect(x, 30, 22, barHeight, attrs, name)
		p.text(x+28, 40, "start", "#000", name)
		x += 50 + 6.2*float64(len(name))
	}
	for _, c := range p.clients {
		item(fmt.Sprintf(`fill="%s"`, p.color(c)), c)
	}
	item(`fill="#999" stroke="#d00" stroke-width="1.5"`, "lost")
	item(`fill="#999" fill-opacity=".35"`, "lost, not yet unlocked")
	if len(p.found) > 0 {
		item(`fill="#f00"`, "violation")
	}
	item(`fill="#f4b6b6" fill-opacity=".6"`, "server: paused, cut off")
	item(`fill="#555" fill-opacity=".7"`, "killed")
	item(`fill="#e8b04b" fill-opacity=".7"`, "client stopped")
	item(`fill="#b39ddb" fill-opacity=".7"`, "link cut, hung, slow, lossy")
}

// strip draws the i-th strip.
func (p *picture) strip(i int) {
	from := p.from + time.Duration(i)*p.stretch
	top := headHeight + float64(i*(p.height()+stripGap))
	bottom := top + float64(p.height())
	p.axis(from, top, bottom)
	for _, f := range p.faults {
		if f.Target != "" {
			continue
		}
		if x, w, ok := p.span(from, f.From, f.To); ok {
			title := fmt.Sprintf("%s, %s to %s", f.What, p.clock(f.From), p.clock(f.To))
			p.rect(x, top+axisHeight-8, w, bottom-top-axisHeight+8, fmt.Sprintf(`fill="%s" fill-opacity=".3"`, shade(f.What)), title)
			p.label(x, w, top+axisHeight-10, 11, f.What)
		}
	}
	y := top + axisHeight
	for _, key := range p.keys {
		n := max(1, len(p.rows[key]))
		p.text(marginLeft-8, y+float64(n*barHeight)/2+4, "end", "#000", key)
		for i, row := range p.rows[key] {
			for _, o := range row {
				p.hold(from, y+float64(i*barHeight), o)
			}
		}
		for _, v := range p.found {
			if x, _, ok := p.span(from, v.At, v.At); ok && v.Key == key {
				p.rect(x-1, y-3, 3, float64(n*barHeight+6), `fill="#f00"`, v.String())
			}
		}
		y += float64(n*barHeight + rowGap)
		fmt.Fprintf(p, `<path d="M%d %.1fH%d" stroke="#eee"/>`+"\n", marginLeft, y-rowGap/2, marginLeft+plotWidth)
	}
	for _, c := range p.clients {
		p.text(marginLeft-8, y+faultRow+4, "end", p.color(c), "faults of "+c)
		p.client(from, y, c)
		y += 2*faultRow + rowGap
	}
}

// axis draws the times above a strip, and the strip's grid.
func (p *picture) axis(from time.Duration, top, bottom float64) {
	const ticks = 30
	for n := range ticks + 1 {
		t := from + time.Duration(n)*p.stretch/ticks
		x := marginLeft + float64(n)*plotWidth/ticks
		color := "#f2f2f2"
		if n%5 == 0 {
			color = "#ccc"
			p.text(x, top+8, "middle", "#555", p.clock(t)[:5])
		}
		fmt.Fprintf(p, `<path d="M%.1f %.1fV%.1f" stroke="%s"/>`+"\n", x, top+12, bottom, color)
	}
}

// clock formats a time since the beginning as minutes and seconds.
func (p *picture) clock(t time.Duration) string {
	t -= p.from
	return fmt.Sprintf("%02d:%06.3f", int(t.Minutes()), (t % time.Minute).Seconds())
}

// span returns where a strip shows the time from begin to end. ok is false if the strip does not
// show that time.
func (p *picture) span(from, begin, end time.Duration) (x, w float64, ok bool) {
	to := from + p.stretch
	if begin >= to || end <= from && end > begin || begin < from && end == begin {
		return 0, 0, false
	}
	scale := float64(plotWidth) / float64(p.stretch)
	begin, end = max(begin, from), min(end, to)
	return marginLeft + float64(begin-from)*scale, max(1, float64(end-begin)*scale), true
}

// label writes a text into a span if there is room.
func (p *picture) label(x, w, y, size float64, text string) {
	if w > .55*size*float64(len(text)) {
		fmt.Fprintf(p, `<text x="%.1f" y="%.1f" font-size="%.0f" text-anchor="middle" fill="#222">%s</text>`+"\n", x+w/2, y, size, html.EscapeString(text))
	}
}

func (p *picture) hold(from time.Duration, y float64, o *rules.Hold) {
	title := fmt.Sprintf("%s %s: %s of %s, token %d, weight %d\nrequested %s, held %s to %s", o.Process, o.Key, o.What, o.Key, o.Token, o.Weight,
		p.clock(o.Requested), p.clock(o.Granted), p.clock(o.Certain()))
	attrs := fmt.Sprintf(`fill="%s" stroke="#fff" stroke-width=".5"`, p.color(o.Process))
	if !o.Freed() {
		title += ", then lost"
		attrs = fmt.Sprintf(`fill="%s" stroke="#d00" stroke-width="1.5"`, p.color(o.Process))
		if x, w, ok := p.span(from, o.Certain(), max(o.Certain(), o.Done)); ok {
			p.rect(x, y+1, w, barHeight-2, fmt.Sprintf(`fill="%s" fill-opacity=".35"`, p.color(o.Process)), title)
		}
	}
	if x, w, ok := p.span(from, o.Granted, o.Certain()); ok {
		p.rect(x, y+1, w, barHeight-2, attrs, title)
	}
}

// client draws the faults of a client's process in the upper half of the client's row, and the
// faults of its link in the lower half.
func (p *picture) client(from time.Duration, y float64, name string) {
	for _, f := range p.faults {
		if f.Target != name {
			continue
		}
		x, w, ok := p.span(from, f.From, f.To)
		if !ok {
			continue
		}
		at := y
		if strings.HasPrefix(f.What, "link") {
			at += faultRow
		}
		title := fmt.Sprintf("%s of %s, %s to %s", f.What, name, p.clock(f.From), p.clock(f.To))
		p.rect(x, at, w, faultRow-1, fmt.Sprintf(`fill="%s" fill-opacity=".7"`, shade(f.What)), title)
		_, what, _ := strings.Cut(f.What, " ")
		p.label(x, w, at+faultRow-3, 9, what)
	}
}
