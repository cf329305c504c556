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
	given   = make(map[string]bool) // ports that FreePorts has returned
)

// Servers get their ports from this range. It is below the range of ports for outgoing connections. That range begins
// at 32,768 on Linux and at 49,152 on other systems. An outgoing connection could otherwise take a server's port before
// the server listens.
const (
	firstPort = 10_000
	portsEnd  = 32_768
)

// maxTries is the maximum number of ports that FreePorts tries for each port that it returns.
const maxTries = 100

// FreePorts returns n ports of 127.0.0.1 on which nobody listened a moment ago, outside the range of outgoing
// connections. A process never gets the same port twice, so servers that it starts at the same time get different
// ports. FreePorts may be called concurrently.
func FreePorts(n int) ([]string, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var free []string
	var taken error // the error of the last port that was in use
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
		return nil, fmt.Errorf("%d of %d ports of 127.0.0.1 are free after %d tries; the last one taken: %v", len(free), n, n*maxTries, taken)
	}
	return free, nil
}
