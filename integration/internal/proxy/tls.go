package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"
	"time"
)

// NewTLS is [New] for clients that use TLS, which the proxy terminates. It delays each handshake by
// the duration slow. The clients must use the configuration that NewTLS returns, which trusts the
// proxy.
func NewTLS(t testing.TB, upstream string, slow time.Duration) (*Proxy, *tls.Config) {
	t.Helper()
	local := httptest.NewTLSServer(nil) // only for its certificate, which is valid for the loopback address
	local.Close()
	server := &tls.Config{
		Certificates: local.TLS.Certificates,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			time.Sleep(slow)
			return nil, nil // keep this configuration
		},
	}
	roots := x509.NewCertPool()
	roots.AddCert(local.Certificate())
	p := start(t, tls.NewListener(listen(t), server), NewNetwork(t), route{upstream: upstream})
	return p, &tls.Config{RootCAs: roots}
}
