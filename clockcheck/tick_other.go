//go:build !windows

package clockcheck

// tick is how late a reading of either clock of the host may be: not at all,
// where it is read to the nanosecond.
const tick = 0
