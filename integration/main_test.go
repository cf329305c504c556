package integration_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// lab keeps the servers for this run.
var lab = server.New()

var noErr = testkit.NoErr

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError) // hide the warnings that faults cause
	proc.Child(children)                    // Child does not return in a child process
	code := lab.Main(m)
	leasehold.remove()
	os.Exit(code)
}
