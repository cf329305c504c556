package dsynchttp

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"clock": func(t time.Time) string { return t.Format("15:04:05") },
		"text":  text,
	}).Parse(pageHTML))
)

// text returns a value that processes have published as people can read it, cut
// where it is long.
func text(value []byte) string {
	const most = 2000
	more := ""
	if len(value) > most {
		value, more = value[:most], fmt.Sprintf(" … (%d bytes in all)", len(value))
	}
	if utf8.Valid(value) {
		return string(value) + more
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

// show answers with what q asks for. What this process knows of itself is shown
// whether or not the store answers.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, q query) {
	l := h.look(r.Context(), q)
	l.asked = r.URL.Query().Has("asked")
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

func render(name string, l look) ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.ExecuteTemplate(&b, name, l)
	return b.Bytes(), err
}
