package integration_test

import (
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// lab is the servers of this run.
var lab = server.New()

func TestMain(m *testing.M) {
	proc.Child(children) // does not return in a child process
	code := lab.Main(m)
	leasehold.remove()
	os.Exit(code)
}
