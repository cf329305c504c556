// Package rfc3339 writes times as text, for people and for JSON.
package rfc3339

import "time"

// Millis returns t in the format of RFC 3339, in UTC and with milliseconds, the resolution of the store's clock.
func Millis(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
