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

// Servers get their ports from this range. Connections get theirs from 32,768 on (Linux) or from 49,152 on (others);
// one of them could take a server's port before the server listens.
const (
	firstPort = 10_000
	portsEnd  = 32_768
)

// maxTries is how many ports FreePorts tries for each that it returns.
const maxTries = 100

// FreePorts returns n ports of 127.0.0.1 that nobody listened on a moment ago, and that no connection takes
// meanwhile. It returns none twice, so servers that are started at the same time don't get each other's. It may
// be called concurrently.
func FreePorts(n int) ([]string, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var free []string
	var taken error // the last
	for range n * maxTries {
		if len(free) == n {
			break
		}
		port := strconv.Itoa(firstPort + rand.IntN(portsEnd-firstPort))
		lis, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			taken = err
			continue
		}
		lis.Close()
		if !given[port] {
			given[port] = true
			free = append(free, port)
		}
	}
	if len(free) < n {
		return nil, fmt.Errorf("%d of %d ports of 127.0.0.1 are free, after %d tries; the last that was not: %v", len(free), n, n*maxTries, taken)
	}
	return free, nil
}
