// Package servers starts the measured servers on free ports of the loopback address, with their
// data in temporary directories, and stops them.
package servers
