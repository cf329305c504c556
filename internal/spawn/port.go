package spawn

import (
	"net"
	"sync"
)

var (
	portsMu sync.Mutex
	given   = make(map[string]bool) // by FreePorts
)

// FreePorts returns n ports of 127.0.0.1 that nobody listened on a moment ago. It returns none twice, so
// servers that are started at the same time don't get each other's. It may be called concurrently.
func FreePorts(n int) ([]string, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var free []string
	for len(free) < n {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer lis.Close() // until the last is known: so they differ
		if _, port, _ := net.SplitHostPort(lis.Addr().String()); !given[port] {
			given[port] = true
			free = append(free, port)
		}
	}
	return free, nil
}
