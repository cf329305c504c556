package driver

import "time"

// MaxDuration is the longest duration that a session takes for anything, and gives to a [Store]: 50
// years of 365 days. It leaves room for what is computed from durations: a time.Duration holds the
// sum of five.
const MaxDuration = 50 * 365 * 24 * time.Hour
