package spawn

import "net"

// FreePorts returns n ports of 127.0.0.1 that nobody listened on a moment ago. They
// differ: all are held until the last is known.
func FreePorts(n int) ([]string, error) {
	var free []string
	for range n {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer lis.Close()
		_, port, _ := net.SplitHostPort(lis.Addr().String())
		free = append(free, port)
	}
	return free, nil
}
