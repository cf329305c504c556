// Package peer makes each of the other locking systems a [measure.System], through the library that
// its users would choose.
package peer
