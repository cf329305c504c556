package agent_test

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A thousand open locks fit into 64 MB, with the clients' ends of the connections, and the store.
func TestThousandOpenLocks(t *testing.T) {
	testkit.Large(t)
	const n, most = 1000, 64 << 20
	store := dsynctest.NewMemory()
	s := newSession(t, store, nil)
	server := httptest.NewServer(agent.New(s, nil))
	t.Cleanup(func() {
		s.Close(background)
		server.Close()
	})
	before := used()
	for i := range n {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		noErr(t, err)
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET /v1/locks/k%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i)
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), 200); err != nil {
			t.Fatal(err)
		}
		if len(testkit.Holders(t, store, fmt.Sprintf("k%d", i))) != 1 {
			t.Fatalf("lock %d is not held", i)
		}
	}
	if got := used() - before; got > most {
		t.Errorf("%d open locks take %d kB, want at most %d", n, got>>10, most>>10)
	} else {
		t.Logf("%d open locks take %d kB", n, got>>10)
	}
}

// used returns how much memory is in use.
func used() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
