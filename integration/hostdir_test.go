package integration_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// newHostDir returns a folder that will do as HostDir, or on other systems than Linux "".
func newHostDir(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return ""
	}
	path := t.TempDir()
	if _, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{HostDir: path}); err == nil {
		return path
	}
	path, err := os.MkdirTemp("/dev/shm", "leasehold") // the other is on an overlay, say
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}
