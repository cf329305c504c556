package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"
)

// NewTLS is [New] for clients that use TLS, which the proxy terminates. Each handshake takes slow
// longer than it needs. The clients use the configuration that NewTLS returns, which trusts the proxy.
func NewTLS(t testing.TB, upstream string, slow time.Duration) (*Proxy, *tls.Config) {
	t.Helper()
	cert, roots := certificate(t)
	server := &tls.Config{
		Certificates: []tls.Certificate{cert},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			time.Sleep(slow)
			return nil, nil // this one
		},
	}
	p := start(t, tls.NewListener(listen(t), server), upstream, NewNetwork(t))
	return p, &tls.Config{RootCAs: roots}
}

// certificate makes a certificate for this host's loopback address, and what trusts it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
