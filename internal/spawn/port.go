package spawn

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

var (
	portsMu sync.Mutex
	given   = make(map[string]bool) // by FreePorts
)

// Ports from which a system takes none for a connection that asks for no certain one: Linux begins at 32,768,
// others at 49,152. Such a connection could take a free port before the server that is meant to listen there.
const (
	firstPort = 10_000
	portsEnd  = 32_768
)

// FreePorts returns n ports of 127.0.0.1 that nobody listened on a moment ago, and that no connection takes
// meanwhile. It returns none twice, so servers that are started at the same time don't get each other's. It may
// be called concurrently.
func FreePorts(n int) ([]string, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var free []string
	for tries := 0; len(free) < n; tries++ {
		port := strconv.Itoa(firstPort + rand.IntN(portsEnd-firstPort))
		if given[port] {
			continue
		}
		lis, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		switch {
		case err == nil:
			lis.Close()
			given[port] = true
			free = append(free, port)
		case tries >= 100+n:
			return nil, fmt.Errorf("no free port: %w", err)
		}
	}
	return free, nil
}
