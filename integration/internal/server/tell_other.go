//go:build !linux

package server

import "os"

// terminal returns the terminal of the person who runs the tests; nil if there is none. The tests
// can't print there themselves, because go test discards the output of passing tests.
func terminal() *os.File {
	f, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return f
}
