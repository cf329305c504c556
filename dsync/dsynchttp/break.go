package dsynchttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// breakKey breaks the lock of the key in the form, if it is authorised. Requests of
// other sites' pages don't come this far.
func (h *Handler) breakKey(w http.ResponseWriter, r *http.Request) {
	if h.opt.Authorize == nil {
		http.Error(w, "breaking locks is not enabled here: see dsynchttp.Options.Authorize", http.StatusForbidden)
		return
	}
	if err := h.opt.Authorize(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.PostForm.Get("key")
	if err := dsync.CheckKey(key); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Who was asked to give the key up will, in its own time: the page shows when.
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	err := h.s.Break(ctx, key)
	q := query{key: key, n: 100, window: windows[1]}
	v := q.values()
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		v.Set("asked", "")
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Location", "key?"+v.Encode())
	w.WriteHeader(http.StatusSeeOther)
}
