package certmagic_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Processes that start at the same time obtain only one certificate for each name, and all of them
// use it.
func TestOneCertificateForAllProcesses(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ca := &authority{t: t, takes: time.Second}
		names := []string{"a.example.com", "b.example.com", "c.example.com"}
		var configs []*certmagic.Config
		for range 3 {
			configs = append(configs, newConfig(t, path, newLocker(t, store), ca))
		}
		var wg sync.WaitGroup
		for _, config := range configs {
			for _, name := range names {
				wg.Go(func() {
					if err := config.ManageSync(background, []string{name}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		want := map[string]int{"a.example.com": 1, "b.example.com": 1, "c.example.com": 1}
		if !maps.Equal(ca.issued, want) {
			t.Errorf("the authority issued %v, want one certificate for each name", ca.issued)
		}
		for i, config := range configs {
			for _, name := range names {
				if _, err := config.CacheManagedCertificate(background, name); err != nil {
					t.Errorf("process %d has no certificate for %q: %v", i, name, err)
				}
			}
		}
	})
}

// A process loses its lock while it tries to obtain a certificate, and the attempt fails. Before the process retries,
// it acquires the lock again. It then finds the certificate that another process has obtained in the meantime.
func TestRetryAfterALossFindsTheCertificate(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const name = "a.example.com"
		store := dsynctest.NewMemory()
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		// The first process is cut off from both the store and the authority.
		first := &authority{t: t, takes: 2 * ttl, fail: func(context.Context) error { return errors.New("no network") }}
		other := &authority{t: t, takes: 2 * time.Minute}
		a, b := newConfig(t, path, newLocker(t, faulty), first), newConfig(t, path, newLocker(t, store), other)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.ObtainCertAsync(background, name); err != nil {
				t.Errorf("the process that lost its lock failed: %v", err)
			}
		})
		time.Sleep(time.Second)
		faulty.Cut()
		wg.Go(func() {
			if err := b.ObtainCertAsync(background, name); err != nil {
				t.Errorf("the other process failed: %v", err)
			}
		})
		time.Sleep(2 * ttl)
		faulty.Heal() // the other process is still obtaining the certificate, and the first has not retried yet
		wg.Wait()
		if first.requests[name] != 1 || other.issued[name] != 1 {
			t.Errorf("the first process requested %d certificates and the other obtained %d, want 1 and 1", first.requests[name], other.issued[name])
		}
	})
}
