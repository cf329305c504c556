package spawn_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// Free ports differ, can be listened on, and are outside the range of outgoing connections. An outgoing
// connection could take a port in that range before a slow server listens on it.
func TestFreePorts(t *testing.T) {
	known := make(map[string]bool)
	for range 20 {
		ports, err := spawn.FreePorts(3)
		if err != nil || len(ports) != 3 {
			t.Fatalf("%q, %v", ports, err)
		}
		for _, port := range ports {
			if n, err := strconv.Atoi(port); err != nil || n < 1024 || n >= 32768 || known[port] {
				t.Errorf("port %s; known before: %t", port, known[port])
			}
			known[port] = true
			lis, err := net.Listen("tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Error(err)
				continue
			}
			defer lis.Close()
		}
	}
}
