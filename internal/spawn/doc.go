// Package spawn has what starting a server on this machine takes, whichever server
// it is: the tests and the measurements start several.
package spawn
