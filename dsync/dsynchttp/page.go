package dsynchttp

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/statusjson"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	// pageTemplate parses the template when it is first needed. That takes half a millisecond, which programs such as
	// the command leasehold would otherwise spend at each start.
	pageTemplate = sync.OnceValue(func() *template.Template {
		return template.Must(template.New("page").Funcs(template.FuncMap{
			"clock": func(t statusjson.Time) string { return clock(t.Time) },
			"text":  text,
			"show":  visible,
			"plain": func(s string) string { return escaped(s, "") },
		}).Parse(pageHTML))
	})
)

// text returns a published value in readable form, truncated if it is long.
func text(value []byte) string {
	const most = 2000
	more := ""
	if len(value) > most {
		value, more = value[:most], fmt.Sprintf(" … (%d bytes in all)", len(value))
	}
	if utf8.Valid(value) {
		return escaped(string(value), "\n\t") + more
	}
	return strconv.QuoteToASCII(string(value)) + more
}

func (h *Handler) overview(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	q.key = ""
	h.show(w, r, q)
}

func (h *Handler) key(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.show(w, r, q)
}

// show responds to q. If the store does not answer, the response still has what this process knows about itself.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, q query) {
	l := h.read(r.Context(), q, anchor{})
	l.Asked = r.URL.Query().Has("asked")
	status := http.StatusOK
	if q.key != "" && l.Error == "" && l.Unknown() {
		status = http.StatusNotFound
	}
	w.Header().Set("Vary", "Accept")
	if q.json {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(l)
		return
	}
	page, err := render("page", l)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

func render(name string, l view) ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate().ExecuteTemplate(&b, name, l)
	return b.Bytes(), err
}

// The template uses the following methods of view.

func (l view) Key() string        { return l.q.key }
func (l view) Prefix() string     { return l.q.prefix }
func (l view) Contains() string   { return l.q.contains }
func (l view) After() string      { return l.q.after }
func (l view) N() int             { return l.q.n }
func (l view) Window() string     { return windowTitle(l.q.window) }
func (l view) WindowName() string { return windowName(l.q.window) }

// Searched reports whether the request searched the store, and so may have read keys that the page
// does not show.
func (l view) Searched() bool {
	return l.q.contains != "" || l.q.sort == byAge || l.q.sort == byWaiters || l.Matched > len(l.Keys)
}

// Left returns the address of the same list in byte order. It returns "" unless the list is in the default order and
// leaves out keys that were read.
func (l view) Left() string {
	if l.q.sort != byUse || l.Matched == len(l.Keys) {
		return ""
	}
	q := l.q
	q.sort, q.after = byKey, ""
	return q.link()
}

// Viewer reports whether the session is used only for viewing: it is not registered, and this process holds nothing
// and waits for nothing.
func (l view) Viewer() bool { return l.Session.ID == "" && !l.Session.Closed && l.Totals.Mine == 0 }

func (s sessionView) Who() string     { return who(s.Name, s.Host, "this process") }
func (m memberView) Who() string      { return who(m.Name, m.Host, m.Session) }
func (p participantView) Who() string { return who(p.Name, p.Host, p.Session) }
func (p partyView) Who() string       { return who(p.Name, p.Host, p.Session) }

// Unknown reports whether the page is about one key, and the store has no record of it.
func (l view) Unknown() bool { return len(l.Keys) == 1 && l.Keys[0].Kind == "" }

// LeasePercent returns how much of the lease is left, in percent.
func (s sessionView) LeasePercent() string {
	return percent(100 * float64(s.Left) / float64(max(1, s.Lease)))
}

// who returns a name for a process, for display.
func who(name, host, session string) string {
	switch {
	case name != "":
		return visible(name)
	case host != "":
		return visible(host)
	}
	return session
}

// KeyLink returns the address of the page about key.
func (l view) KeyLink(key string) string { return query{key: key, n: 100, window: l.q.window}.link() }

// A pager describes the part of a list that is shown.
type pager struct {
	From, To, Total int    // positions, counted from 1
	Before, Next    string // addresses, or ""
}

// MinePages returns the pager for this process's list.
func (l view) MinePages() pager {
	return l.pages(l.q.mine, len(l.Mine), l.Totals.Mine, func(q *query, at int) { q.mine = at })
}

// MemberPages returns the pager for the members.
func (l view) MemberPages() pager {
	return l.pages(l.q.members, len(l.Members), l.Totals.Members, func(q *query, at int) { q.members = at })
}

// pages returns the pager of a list that shows n elements, starting at position from.
func (l view) pages(from, n, total int, set func(q *query, at int)) pager {
	p := pager{From: from + 1, To: from + n, Total: total}
	q := l.q
	if from > 0 {
		set(&q, max(0, from-l.q.n))
		p.Before = q.link()
	}
	if from+n < total && n > 0 {
		set(&q, from+n)
		p.Next = q.link()
	}
	return p
}

// Sorts returns the orders that can be chosen.
func (l view) Sorts() []choice {
	return []choice{
		{"held first", "held", l.q.sort == byUse},
		{"key", string(byKey), l.q.sort == byKey},
		{"held longest", string(byAge), l.q.sort == byAge},
		{"most waiters", string(byWaiters), l.q.sort == byWaiters},
	}
}

// First returns the address of the first page of keys.
func (l view) First() string {
	q := l.q
	q.after = ""
	return q.link()
}

// JSON returns the address of this page as JSON.
func (l view) JSON() string {
	v := l.q.values()
	v.Set("format", "json")
	if l.q.key != "" {
		return "key?" + v.Encode()
	}
	return "./?" + v.Encode()
}

// A choice is one of several alternatives: a link, or the value of an HTML option.
type choice struct {
	Name, Link string
	Is         bool
}

// Windows returns the links to the windows that timelines can show.
func (l view) Windows() (all []choice) {
	for _, w := range windows {
		q := l.q
		q.window = w
		all = append(all, choice{windowTitle(w), q.link(), w == l.q.window})
	}
	return all
}
