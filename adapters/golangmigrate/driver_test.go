package golangmigrate_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	databasetesting "github.com/golang-migrate/migrate/v4/database/testing"

	"github.com/leasehold-go/leasehold/adapters/golangmigrate"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// These are golang-migrate's own tests for drivers. They use subtests, so they can't run in a
// bubble.
func TestConformsToGolangMigrate(t *testing.T) {
	databasetesting.Test(t, newDriver(t, newDB(t), dsynctest.NewMemory(), nil), []byte("a"))
}

func TestLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 5 * time.Second
		store, db := dsynctest.NewMemory(), newDB(t)
		opt := &golangmigrate.Options{Wait: wait}
		a, b := newDriver(t, db, store, opt), newDriver(t, db, store, opt)
		lock := func(d *golangmigrate.Driver) (took time.Duration, err error) {
			start := time.Now()
			err = d.Lock()
			return time.Since(start), err
		}
		if err := a.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			t.Errorf("Unlock of an unlocked driver returned %v, want ErrNotLocked", err)
		}
		if _, err := lock(a); err != nil {
			t.Fatal(err)
		}
		if took, err := lock(a); !errors.Is(err, database.ErrLocked) || took != 0 {
			t.Errorf("Lock of a driver that has the lock returned %v after %v, want ErrLocked at once", err, took)
		}
		if took, err := lock(b); !errors.Is(err, database.ErrLocked) || took != wait {
			t.Errorf("Lock while another driver has the lock returned %v after %v, want ErrLocked after %v", err, took, wait)
		}
		if err := b.Unlock(); !errors.Is(err, database.ErrNotLocked) {
			t.Errorf("Unlock while another driver has the lock returned %v, want ErrNotLocked", err)
		}

		var wg sync.WaitGroup
		wg.Go(func() {
			if took, err := lock(b); err != nil || took != time.Second {
				t.Errorf("Lock of a lock that becomes free after a second returned %v after %v, want nil after 1s", err, took)
			}
		})
		synctest.Wait()
		if took, err := lock(b); !errors.Is(err, database.ErrLocked) || took != 0 {
			t.Errorf("Lock of a driver that already waits returned %v after %v, want ErrLocked at once", err, took)
		}
		time.Sleep(time.Second)
		if err := a.Unlock(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := b.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// If the store is unreachable, Lock fails after Wait.
func TestLockWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer faulty.Close()
		faulty.Cut()
		d := newDriver(t, newDB(t), faulty, nil)
		start := time.Now()
		if err := d.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("Lock returned %v, want ErrLocked", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("Lock took %v, want the default of Wait, 10s", took)
		}
	})
}

func TestLostLockPermitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		a, b := newDriver(t, db, faulty, nil), newDriver(t, db, store, nil)
		noErr(t, a.Lock())
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		noErr(t, b.Lock())
		for call, err := range map[string]error{
			"Run":        a.Run(bytes.NewReader([]byte("a"))),
			"SetVersion": a.SetVersion(1, true),
			"Drop":       a.Drop(),
			"Unlock":     a.Unlock(),
		} {
			if !errors.Is(err, dsync.ErrLost) {
				t.Errorf("%s after a loss returned %v, want ErrLost", call, err)
			}
		}
		db.wantCalls()
		if v, dirty, err := a.Version(); v != database.NilVersion || dirty || err != nil {
			t.Errorf("Version returned %d, %t, %v, want NilVersion, false, nil", v, dirty, err)
		}
		if err := a.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("Unlock of a lost lock released another driver's lock: %v", err)
		}
		if err := b.Unlock(); err != nil {
			t.Error(err)
		}
		if err := a.Lock(); err != nil {
			t.Error(err)
		}
	})
}

// If the lock was broken, the error is ErrRevoked.
func TestBrokenLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		d := newDriver(t, db, store, nil)
		noErr(t, d.Lock())
		noErr(t, admin.New(newSession(t, store)).Break(background, name))
		if err := d.SetVersion(1, true); !errors.Is(err, dsync.ErrRevoked) {
			t.Errorf("SetVersion returned %v, want ErrRevoked", err)
		}
		db.wantCalls()
	})
}

// If the store does not answer, Unlock returns no error, and the release continues.
func TestUnlockWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		faulty := dsynctest.NewFaulty(store, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRelease && r.Seq < 20}
		})
		defer faulty.Close()
		d, err := golangmigrate.New(db, newSession(t, faulty), name, nil)
		noErr(t, err)
		noErr(t, d.Lock())
		start := time.Now()
		if err := d.Unlock(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("Unlock took %v, want 10s", took)
		}
		time.Sleep(2 * ttl)
		if err := newDriver(t, db, store, nil).Lock(); err != nil {
			t.Error(err)
		}
	})
}

// Close releases a lock that the driver still has, for example because a Migrate has given up without unlocking.
func TestCloseReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		a, b := newDriver(t, db, store, nil), newDriver(t, db, store, nil)
		noErr(t, a.Lock())
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if !db.closed {
			t.Error("the inner driver was not closed")
		}
		start := time.Now()
		if err := b.Lock(); err != nil || time.Since(start) != 0 {
			t.Errorf("Lock after the holder was closed returned %v after %v, want nil at once", err, time.Since(start))
		}
		if err := a.Lock(); err == nil || errors.Is(err, database.ErrLocked) {
			t.Errorf("Lock of a closed driver returned %v, want an error other than ErrLocked", err)
		}
	})
}

// The driver that Open returns has another database and the same lock.
func TestOpenKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDB(t)
		d := newDriver(t, db, dsynctest.NewMemory(), nil)
		opened, err := d.Open("stub://")
		noErr(t, err)
		noErr(t, d.Lock())
		if err := opened.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("Lock of a driver that the holder opened returned %v, want ErrLocked", err)
		}
		if err := opened.SetVersion(7, false); err != nil {
			t.Error(err)
		}
		db.wantCalls()
		if v, _, err := opened.Version(); v != 7 || err != nil {
			t.Errorf("Version of the opened driver returned %d, %v, want 7, nil", v, err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, locks := newDB(t), newSession(t, dsynctest.NewMemory())
		if _, err := golangmigrate.New(nil, locks, name, nil); err == nil {
			t.Error("New accepted a nil driver")
		}
		if _, err := golangmigrate.New(db, nil, name, nil); err == nil {
			t.Error("New accepted a nil session")
		}
		if _, err := golangmigrate.New(db, locks, "\x00", nil); !errors.Is(err, dsync.ErrInvalidKey) {
			t.Errorf("New with a name that is not a valid key returned %v, want ErrInvalidKey", err)
		}
		for _, wait := range []time.Duration{-1, time.Microsecond, driver.MaxDuration + 1} {
			if _, err := golangmigrate.New(db, locks, name, &golangmigrate.Options{Wait: wait}); err == nil {
				t.Errorf("New accepted %v as Wait", wait)
			}
		}
	})
}
