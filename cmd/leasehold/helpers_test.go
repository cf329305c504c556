package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
)

// A result is what a command line came to.
type result struct {
	status   int
	out, err string
}

// command runs a command line in this process, on store, or with nil on the server
// that its flags name. MONGODB_URI is not set.
func command(t *testing.T, store dsync.Store, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &err,
		getenv: func(string) string { return "" },
		store:  store,
	}
	status := a.main(t.Context(), args)
	return result{status, out.String(), err.String()}
}
