package dsync_test

import (
	"context"
	"fmt"
	"os"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If a process crashes and its supervisor starts it again, the new process waits for a short margin instead of a
// TTL. A real program uses a folder that outlives the process, such as /run/invoices, and a database as the store.
func ExampleOptions_hostDir() {
	dir, err := os.MkdirTemp("/dev/shm", "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	locks, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{HostDir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	mu := locks.Mutex("invoices")
	mu.Lock()
	files, _ := os.ReadDir(dir)
	fmt.Println("held, with", len(files), "file")
	mu.Unlock()
	locks.Close(context.Background())
	files, _ = os.ReadDir(dir)
	fmt.Println("closed, with", len(files))
	// Output:
	// held, with 1 file
	// closed, with 0
}
