// Package spawn helps tests and measurements to start servers on this machine.
package spawn
