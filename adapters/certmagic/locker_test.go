package certmagic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	dsynccertmagic "github.com/leasehold-go/leasehold/adapters/certmagic"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestLockerWaitsAndTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newLocker(t, store), newLocker(t, store)
		if err := a.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*dsynccertmagic.Locker{a, b} {
			if ok, err := l.TryLock(background, "n"); ok || err != nil {
				t.Errorf("TryLock of a locked name returned %t, %v, want false, nil", ok, err)
			}
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if err := b.Lock(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returned %v, want DeadlineExceeded when ctx ends", err)
		}
		if err := b.Unlock(background, "n"); err == nil {
			t.Error("Unlock of a name that another process has locked returned no error")
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Lock(background, "n"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := a.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := b.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		if ok, err := a.TryLock(background, "n"); !ok || err != nil {
			t.Errorf("TryLock of a free name returned %t, %v, want true, nil", ok, err)
		}
		if err := a.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		if err := a.Lock(background, "\x00"); !errors.Is(err, dsync.ErrInvalidKey) {
			t.Errorf("Lock of a name that is not a valid key returned %v, want ErrInvalidKey", err)
		}
		if _, err := dsynccertmagic.NewLocker(nil, nil); err == nil {
			t.Error("NewLocker accepted a nil session")
		}
	})
}

// Renewing a lock that is still held does nothing. Renewing a lost lock acquires it again once its
// present holder has released it. Unlock of a lost lock does not release another process's lock.
func TestRenewalOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		a, b := newLocker(t, faulty), newLocker(t, store)
		if err := a.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		before := store.Counts()
		if err := a.RenewLockLease(background, "n", time.Hour); err != nil {
			t.Error(err)
		}
		if n := store.Counts().Since(before).Total(); n != 0 {
			t.Errorf("renewing a lock that is held took %d commands, want none", n)
		}
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		if err := b.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if err := a.RenewLockLease(ctx, "n", time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("renewing a lost lock while another process has it returned %v, want DeadlineExceeded", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.RenewLockLease(background, "n", time.Hour); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		if ok, err := newLocker(t, store).TryLock(background, "n"); ok || err != nil {
			t.Errorf("TryLock of another process's lock returned %t, %v, want false, nil", ok, err)
		}
		if err := b.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if ok, _ := b.TryLock(background, "n"); ok {
			t.Error("another process acquired a lock that was renewed")
		}

		faulty.Cut()
		time.Sleep(2 * ttl)
		if err := b.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		faulty.Heal()
		if err := a.Unlock(background, "n"); err != nil {
			t.Errorf("Unlock of a lost lock returned %v, want nil", err)
		}
		if ok, _ := a.TryLock(background, "n"); ok {
			t.Error("Unlock of a lost lock released another process's lock")
		}
	})
}

// The storage also has the optional interfaces.
func TestStorageHasTheLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, dsynctest.NewMemory())
		storage := l.Storage(files{&certmagic.FileStorage{}, t})
		if err := storage.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		if try, ok := storage.(certmagic.TryLocker); !ok {
			t.Error("the storage is not a TryLocker")
		} else if got, err := try.TryLock(background, "n"); got || err != nil {
			t.Errorf("TryLock of a locked name returned %t, %v, want false, nil", got, err)
		}
		if renew, ok := storage.(certmagic.LockLeaseRenewer); !ok {
			t.Error("the storage is not a LockLeaseRenewer")
		} else if err := renew.RenewLockLease(background, "n", time.Hour); err != nil {
			t.Error(err)
		}
		if err := storage.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
	})
}

// A goroutine keeps a name from its Lock to its Unlock, even while it renews a lost lock, and even if the renewal
// fails. Unlock gets only the name. So if another goroutine of this process had locked the name meanwhile, the first
// goroutine's Unlock would release the other goroutine's lock.
func TestRenewalThatFailsKeepsTheName(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		t.Run(fmt.Sprintf("renewed once more: %t", renewed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store)
				a, other := lockerOf(t, s), newLocker(t, store)
				if err := a.Lock(background, "n"); err != nil {
					t.Fatal(err)
				}
				go admin.New(s).Break(background, "certmagic/n")
				time.Sleep(2 * ttl)
				if err := other.Lock(background, "n"); err != nil {
					t.Fatal(err)
				}
				second := false // true if the second goroutine has locked the name
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := a.Lock(background, "n"); err != nil {
						t.Error(err)
					}
					second = true
				})
				synctest.Wait()

				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				if err := a.RenewLockLease(ctx, "n", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("renewing while another process has the lock returned %v, want DeadlineExceeded", err)
				}
				if err := other.Unlock(background, "n"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if second {
					t.Error("a second goroutine has locked the name although the first has not unlocked it")
				}
				if ok, err := a.TryLock(background, "n"); ok || err != nil {
					t.Errorf("TryLock of a name that another goroutine has locked returned %t, %v, want false, nil", ok, err)
				}
				if renewed {
					if err := a.RenewLockLease(background, "n", time.Minute); err != nil {
						t.Errorf("the second renewal returned %v, want nil", err)
					}
					if ok, err := other.TryLock(background, "n"); ok || err != nil {
						t.Errorf("TryLock of a renewed lock in another process returned %t, %v, want false, nil", ok, err)
					}
				}
				if err := a.Unlock(background, "n"); err != nil {
					t.Errorf("the first goroutine's Unlock returned %v, want nil", err)
				}
				wg.Wait()
				if ok, err := other.TryLock(background, "n"); ok || err != nil {
					t.Errorf("TryLock in another process, while the second goroutine has the lock, returned %t, %v, want false, nil", ok, err)
				}
				if err := a.Unlock(background, "n"); err != nil {
					t.Errorf("the second goroutine's Unlock returned %v, want nil", err)
				}
				if ok, err := other.TryLock(background, "n"); !ok || err != nil {
					t.Errorf("TryLock of a free lock returned %t, %v, want true, nil", ok, err)
				}
				if err := a.RenewLockLease(background, "n", time.Minute); err == nil {
					t.Error("the renewal of a name that this process has not locked returned no error")
				}
			})
		})
	}
}

// If certmagic.CleanUpOwnLocks unlocks a name while a goroutine renews it, the renewal leaves
// nothing locked.
func TestUnlockDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store)
		a, other := lockerOf(t, s), newLocker(t, store)
		if err := a.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		go admin.New(s).Break(background, "certmagic/n")
		time.Sleep(2 * ttl)
		if err := other.Lock(background, "n"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.RenewLockLease(background, "n", time.Minute); err == nil {
				t.Error("the renewal succeeded although the name was unlocked meanwhile")
			}
		})
		synctest.Wait()
		if err := a.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		if err := other.Unlock(background, "n"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if ok, err := other.TryLock(background, "n"); !ok || err != nil {
			t.Errorf("TryLock after the renewal returned %t, %v, want true, nil", ok, err)
		}
	})
}
