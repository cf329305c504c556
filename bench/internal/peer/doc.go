// Package peer makes other locking systems available as a [measure.System], each through the
// library that its users would choose.
package peer
