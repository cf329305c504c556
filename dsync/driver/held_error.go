package driver

import (
	"fmt"
	"time"
)

// A HeldError reports who holds the key that a try failed to acquire. It matches [ErrHeld].
type HeldError struct {
	Key     string
	Here    bool      // the session that tried holds the key itself, or waits for it; then Session is ""
	Session string    // the id of the holder's session
	Host    string    // of the holder; "" if unknown
	PID     int       // of the holder; 0 if unknown
	Since   time.Time // when the key was granted, by the store's clock; zero: not granted yet
	Until   time.Time // the end of a fixed lease, by the store's clock; zero: not a fixed lease
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
