package golangmigrate_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"

	"github.com/leasehold-go/leasehold/adapters/golangmigrate"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If several processes start at the same time, one runs the migrations. The others wait and then find nothing to do.
func TestEachMigrationRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		db.step = func(string) { time.Sleep(time.Second) }
		var mu sync.Mutex
		results := map[error]int{}
		var wg sync.WaitGroup
		for range 3 {
			m := newMigrate(t, newDriver(t, db, store, nil), "a", "b")
			wg.Go(func() {
				err := m.Up()
				mu.Lock()
				defer mu.Unlock()
				results[err]++
			})
		}
		wg.Wait()
		if results[nil] != 1 || results[migrate.ErrNoChange] != 2 {
			t.Errorf("Up returned %v, want nil once and ErrNoChange twice", results)
		}
		db.wantCalls("set 1 true", "run a", "set 1 false", "set 2 true", "run b", "set 2 false")
	})
}

// A process that dies while it has the lock keeps it for at most a TTL.
func TestDeadProcessDoesNotKeepTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		noErr(t, newDriver(t, db, faulty, nil).Lock())
		faulty.Cut() // the process never reaches the store again
		start := time.Now()
		m := newMigrate(t, newDriver(t, db, store, &golangmigrate.Options{Wait: 2 * ttl}), "a")
		m.LockTimeout = 3 * ttl
		noErr(t, m.Up())
		if took := time.Since(start); took < ttl/2 || took > ttl+ttl/2 {
			t.Errorf("the next process began after %v, want a TTL, %v, after the last heartbeat", took, ttl)
		}
		db.wantCalls("set 1 true", "run a", "set 1 false")
	})
}

// A process that loses the lock takes no further step, and Up reports the loss. The migrations are empty, because
// golang-migrate leaves a goroutine behind for each migration whose text nobody reads.
func TestLossStopsBeforeTheNextStep(t *testing.T) {
	for _, test := range []struct {
		during string // the step in which the lock is lost
		calls  []string
		dirty  bool
	}{
		{"set 1 true", []string{"set 1 true"}, true},
		{"run ", []string{"set 1 true", "run "}, true},
		{"set 1 false", []string{"set 1 true", "run ", "set 1 false"}, false},
		{"set 2 true", []string{"set 1 true", "run ", "set 1 false", "set 2 true"}, true},
		{"set 2 false", []string{"set 1 true", "run ", "set 1 false", "set 2 true", "run ", "set 2 false"}, false},
	} {
		t.Run(test.during, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, db := dsynctest.NewMemory(), newDB(t)
				faulty := dsynctest.NewFaulty(store, nil)
				defer faulty.Close()
				db.step = func(call string) {
					if call == test.during {
						faulty.Cut()
						time.Sleep(2 * ttl)
						faulty.Heal()
					}
				}
				err := newMigrate(t, newDriver(t, db, faulty, nil), "", "").Up()
				if !errors.Is(err, dsync.ErrLost) {
					t.Errorf("Up returned %v, want ErrLost", err)
				}
				db.wantCalls(test.calls...)

				db.step = nil
				err = newMigrate(t, newDriver(t, db, store, nil), "", "").Up()
				if dirty := errors.As(err, new(migrate.ErrDirty)); dirty != test.dirty {
					t.Errorf("the next process's Up returned %v; want an error about a dirty version: %t", err, test.dirty)
				}
			})
		})
	}
}

// After a loss, golang-migrate does not let the same Migrate continue, but another Migrate with the same driver can
// continue.
func TestAnotherMigrateContinuesAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		db.step = func(call string) {
			if call == "set 1 false" {
				faulty.Cut()
				time.Sleep(2 * ttl)
				faulty.Heal()
			}
		}
		d := newDriver(t, db, faulty, nil)
		m := newMigrate(t, d, "", "")
		if err := m.Up(); !errors.Is(err, dsync.ErrLost) {
			t.Fatalf("Up returned %v, want ErrLost", err)
		}
		if err := m.Up(); !errors.Is(err, migrate.ErrLocked) {
			t.Errorf("the next Up returned %v, want migrate.ErrLocked", err)
		}
		if err := newMigrate(t, d, "", "").Up(); err != nil {
			t.Error(err)
		}
		db.wantCalls("set 1 true", "run ", "set 1 false", "set 2 true", "run ", "set 2 false")
	})
}

// A Migrate that has given up on Lock leaves nothing behind once it is closed: its Lock does not acquire the lock
// later, because nobody would then unlock it.
func TestClosedMigrateDoesNotLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, db := dsynctest.NewMemory(), newDB(t)
		holder := newDriver(t, db, store, nil)
		noErr(t, holder.Lock())
		m := newMigrate(t, newDriver(t, db, store, nil), "a")
		m.LockTimeout = time.Second // less than Wait
		if err := m.Up(); !errors.Is(err, migrate.ErrLockTimeout) {
			t.Errorf("Up returned %v, want ErrLockTimeout", err)
		}
		if _, err := m.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		other := newSession(t, store)
		if status, err := admin.New(other).Status(background, name); err != nil || status.Waiting != 0 {
			t.Errorf("%d waiters after Close (error %v), want none", status.Waiting, err)
		}
		if err := holder.Unlock(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if status, err := admin.New(other).Status(background, name); err != nil || len(status.Holders) != 0 {
			t.Errorf("the lock has the holders %v (error %v), want none", status.Holders, err)
		}
	})
}
