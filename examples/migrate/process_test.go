package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// newProcess returns a process with a session on store. The session is closed at the end
// of the test.
func newProcess(t testing.TB, name string, store driver.Store, log *slog.Logger) *process {
	t.Helper()
	locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return &process{name: name, locks: locks, log: log.With("process", name)}
}
