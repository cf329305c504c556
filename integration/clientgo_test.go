package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/spawn"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// B01, B09: the tests of adapters/clientgo, on each server. They are compiled separately, because
// client-go would add minutes to compiling this module.
func TestClientGo(t *testing.T) {
	t.Parallel()
	lab.Servers(t) // skips the test if there is no server
	if !testkit.Long() {
		lab.Skip(t, nil, "client-go takes minutes to compile, and LEASEHOLD_LONG is not set")
	}
	path := filepath.Join(t.TempDir(), "clientgo.test")
	build := exec.Command("go", "test", "-c", "-o", path, ".")
	build.Dir = "../adapters/clientgo"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		cmd := exec.Command(path, "-test.timeout=5m", "-test.v")
		cmd.Env = append(os.Environ(), "MONGODB_URI="+s.URI)
		spawn.EndWithParent(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
