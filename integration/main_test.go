package integration_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// lab is the servers of this run.
var lab = server.New()

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError) // faults make sessions warn
	proc.Child(children)                    // does not return in a child process
	code := lab.Main(m)
	leasehold.remove()
	os.Exit(code)
}
