package certmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	dsynccertmagic "github.com/leasehold-go/leasehold/adapters/certmagic"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const ttl = 10 * time.Second

var background = context.Background()

// newLocker returns a Locker on a session that is closed at the end of the test.
func newLocker(t testing.TB, store driver.Store) *dsynccertmagic.Locker {
	t.Helper()
	return lockerOf(t, newSession(t, store))
}

func newSession(t testing.TB, store driver.Store) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(background) })
	return s
}

func lockerOf(t testing.TB, s *dsync.Session) *dsynccertmagic.Locker {
	t.Helper()
	l, err := dsynccertmagic.NewLocker(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// files is a storage whose own locks must not be used.
type files struct {
	*certmagic.FileStorage
	t testing.TB
}

func (f files) Lock(context.Context, string) error {
	f.t.Error("the storage's own lock was used")
	return nil
}

func (f files) Unlock(context.Context, string) error { return nil }

// newConfig returns the configuration of one process that keeps its certificates at
// path.
func newConfig(t testing.TB, path string, locker *dsynccertmagic.Locker, issuer certmagic.Issuer) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{
		Storage: locker.Storage(files{&certmagic.FileStorage{Path: path}, t}),
		Issuers: []certmagic.Issuer{issuer},
		OCSP:    certmagic.OCSPConfig{DisableStapling: true},
		Logger:  zap.NewNop(),
	})
	return config
}

// An authority issues certificates, and counts the requests and the certificates.
type authority struct {
	t     testing.TB
	takes time.Duration
	fail  func(ctx context.Context) error // if not nil, called before each certificate is issued; if it returns an error, none is issued

	mu       sync.Mutex
	requests map[string]int // number of requests, by name
	issued   map[string]int
	running  map[string]bool
}

func (a *authority) IssuerKey() string { return "test" }

func (a *authority) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	name := csr.DNSNames[0]
	a.mu.Lock()
	if a.requests == nil {
		a.requests, a.issued, a.running = make(map[string]int), make(map[string]int), make(map[string]bool)
	}
	a.requests[name]++
	if a.running[name] {
		a.t.Errorf("two certificates for %q are requested at the same time", name)
	}
	a.running[name] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running[name] = false
	}()
	time.Sleep(a.takes)
	if a.fail != nil {
		if err := a.fail(ctx); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	a.issued[name]++
	a.mu.Unlock()
	return &certmagic.IssuedCertificate{Certificate: certificate(a.t, csr)}, nil
}

// certificate returns a certificate for csr, signed by an untrusted authority.
func certificate(t testing.TB, csr *x509.CertificateRequest) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Error(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: csr.DNSNames[0]}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, key)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
