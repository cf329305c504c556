package integration_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// newHostDir returns a directory that can be used as HostDir, or "" on systems other than Linux.
func newHostDir(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return ""
	}
	path := t.TempDir()
	if _, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{HostDir: path}); err == nil {
		return path
	}
	path, err := os.MkdirTemp("/dev/shm", "leasehold") // the default directory may be on an overlay file system
	noErr(t, err)
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}
