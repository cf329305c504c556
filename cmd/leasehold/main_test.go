//go:build linux || darwin || freebsd

package main

import (
	"context"
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// onMemory is an environment variable that makes the test binary run as leasehold on a store in
// memory. In that store another session holds the key "held".
const onMemory = "LEASEHOLD_TEST_ON_MEMORY"

// The test binary can also run as leasehold and, as it imports package keep, as leasehold's keeper.
func TestMain(m *testing.M) {
	if os.Getenv(onMemory) != "" {
		store := dsynctest.NewMemory()
		other, err := dsync.New(store, nil)
		if err != nil {
			panic(err)
		}
		other.Mutex("held").Lock()
		a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, store: store}
		os.Exit(a.main(context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}
