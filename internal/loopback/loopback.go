// Package loopback recognises the names of this machine in HTTP requests.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Is reports whether host, with or without a port, is localhost or a loopback address. A handler that answers only
// such requests is safe from DNS rebinding: a hostile site could point its own name to a loopback address. A browser on
// this machine would then send that site's requests here as if they were same-origin.
func Is(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}
