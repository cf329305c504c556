// Package peer has other locking systems as a [measure.System], each through the library that its
// users take.
package peer
