package dsync

import (
	"context"
	"fmt"
	"os"
	"time"
)

// A HeldError says who holds a key that was tried. It is [ErrHeld].
type HeldError struct {
	Key     string
	Here    bool      // the holder is the session that tried, or it waits for the key: then Session is ""
	Session string    // id of the holder's session
	Host    string    // of the holder, "" if it is not known any more
	PID     int       // of the holder, 0 if it is not known any more
	Since   time.Time // when it was granted, by the store's clock; zero: not granted yet
	Until   time.Time // end of a fixed lease, by the store's clock; zero: it has none
}

func (e *HeldError) Error() string {
	by := "is held by another"
	switch {
	case e.Here && e.Session == "":
		by = "is waited for by this process"
	case e.Here:
		by = "is held by this process"
	case e.PID != 0:
		by += fmt.Sprintf(": process %d on %s", e.PID, e.Host)
	}
	msg := fmt.Sprintf("dsync: %q %s", e.Key, by)
	if !e.Since.IsZero() {
		msg += ", since " + e.Since.UTC().Format(time.RFC3339Nano)
	}
	if !e.Until.IsZero() {
		msg += ", until " + e.Until.UTC().Format(time.RFC3339Nano)
	}
	return msg
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// heldError returns the error of a try that found the key in state st.
func (s *Session) heldError(ctx context.Context, st *State) *HeldError {
	e := &HeldError{Key: st.Key}
	switch {
	case len(st.Holders) > 0:
		h := st.Holders[0]
		e.Session, e.Since, e.Until = h.Session, h.Since, h.Until
	case len(st.Ahead) > 0:
		e.Session = st.Ahead[0].Session
	}
	// Nothing was read of one who holds for a fixed time: it need not be alive.
	m := s.who(ctx, e.Session)
	e.Host, e.PID = m.Host, m.PID
	return e
}

// heldHere returns the error of a try on a key that this process holds or waits
// for.
func (s *Session) heldHere(key string, h *hold) *HeldError {
	e := &HeldError{Key: key, Here: true, Host: s.opt.Host, PID: os.Getpid()}
	if h != nil {
		s.mu.Lock()
		e.Session, e.Since, e.Until = h.p.id, h.since, h.until
		s.mu.Unlock()
	}
	return e
}
