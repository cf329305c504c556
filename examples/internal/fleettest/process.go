package fleettest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/examples/internal/fleet"
)

// Process returns a process with a session on store. It ends with the test.
func Process(t testing.TB, name string, store dsync.Store, log *slog.Logger) *fleet.Process {
	t.Helper()
	locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return &fleet.Process{Name: name, Locks: locks, Log: log.With("process", name)}
}
