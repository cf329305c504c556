// Package peer has other systems that lock as [measure.System], each by the library
// that its users take.
package peer
