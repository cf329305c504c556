package dsynchttp

import (
	"bytes"
	"net/http"
	"time"
)

// events streams the page's content, whenever it differs from what was sent last.
// It ends with the request, with the handler, and with the session.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r, r.URL.Query().Has("key"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case h.viewers <- struct{}{}:
		defer func() { <-h.viewers }()
	default:
		http.Error(w, "too many look at this page; it can still be reloaded", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that would hold the stream back
	// A client that reads no more must not keep this goroutine for ever; the
	// server's own limit is for whole answers, which this is not.
	const patience = 10 * time.Second
	send := func(b []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(b)
		return err == nil && control.Flush() == nil
	}
	tick := time.NewTicker(h.opt.Refresh)
	defer tick.Stop()
	var last []byte
	quiet := time.Now()
	for first := true; ; first = false {
		if !first {
			select {
			case <-tick.C:
			case <-h.closed:
				return
			case <-r.Context().Done():
				return
			}
		}
		l := h.look(r.Context(), q)
		content, err := render("content", l)
		if err != nil || r.Context().Err() != nil {
			return
		}
		switch {
		case !bytes.Equal(content, last):
			if !send(event(content)) {
				return
			}
			last, quiet = content, time.Now()
		case time.Since(quiet) > patience:
			if !send([]byte(":\n\n")) {
				return
			}
			quiet = time.Now()
		}
		if l.Session.Closed {
			return
		}
	}
}

// event returns content as one event.
func event(content []byte) []byte {
	var b bytes.Buffer
	b.WriteString("event: content\n")
	for line := range bytes.Lines(content) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
