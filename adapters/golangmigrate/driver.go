package golangmigrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	defaultWait = 10 * time.Second

	// releaseWait is how long Unlock waits for the store's answer. After that, the release continues in the background.
	releaseWait = 10 * time.Second
)

// Options are the settings of a [Driver]. The zero value of each field is its default; a nil
// *Options is all defaults.
type Options struct {
	// Wait is how long Lock waits while another process has the lock. It must be a few seconds less than LockTimeout of
	// migrate.Migrate, which is 15 s by default; see the package comment. A dead process's lock becomes free when its
	// session's TTL runs out, by default 30 s after its last heartbeat. A shorter Wait can end before that. Wait must
	// be 0, or between 1 ms and driver.MaxDuration. Default 10 s.
	Wait time.Duration
}

// A Driver is a database.Driver that wraps another database.Driver, but locks with a [dsync.Mutex]. Make one with
// [New]. Lock, Unlock and Close may be called concurrently with all methods; the other methods may be called
// concurrently if the inner driver permits it.
type Driver struct {
	inner database.Driver
	locks *dsync.Session
	name  string
	wait  time.Duration

	open context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	waiting bool        // a call of Lock has not returned yet
	hold    *dsync.Hold // nil if not locked; even a lost hold stays here until Unlock
}

var _ database.Driver = (*Driver)(nil)

// New returns a Driver that migrates with the inner driver, under the lock of that name on the given session. Processes
// that migrate the same database must use the same name. The name is the lock's key, so no other lock in the store may
// use it. New contacts neither the store nor the database.
//
// New refuses a nil driver, a nil session, a name that is not a valid key (the error is dsync.ErrInvalidKey), and a
// Wait that is neither 0 nor between 1 ms and driver.MaxDuration. The Driver does not close the session.
func New(inner database.Driver, locks *dsync.Session, name string, opt *Options) (*Driver, error) {
	if inner == nil {
		return nil, errors.New("golangmigrate: the inner driver is nil; make one with its package's WithInstance, for example")
	}
	if locks == nil {
		return nil, errors.New("golangmigrate: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	if err := dsync.CheckKey(name); err != nil {
		return nil, fmt.Errorf("golangmigrate: name %q: %w", name, err)
	}
	wait := defaultWait
	if opt != nil && opt.Wait != 0 {
		wait = opt.Wait
	}
	if wait < time.Millisecond || wait > driver.MaxDuration {
		return nil, fmt.Errorf("golangmigrate: Wait is %v; it must be from 1ms to %v (0: %v)", wait, driver.MaxDuration, defaultWait)
	}
	return newDriver(inner, locks, name, wait), nil
}

func newDriver(inner database.Driver, locks *dsync.Session, name string, wait time.Duration) *Driver {
	d := &Driver{inner: inner, locks: locks, name: name, wait: wait}
	d.open, d.stop = context.WithCancel(context.Background())
	return d
}

// Open calls the inner driver's Open with url, and returns a Driver on the result with the same
// session, name and options.
func (d *Driver) Open(url string) (database.Driver, error) {
	inner, err := d.inner.Open(url)
	if err != nil {
		return nil, err
	}
	return newDriver(inner, d.locks, d.name, d.wait), nil
}

// Close makes a waiting Lock return, closes the inner driver, and releases the lock if this driver still has it. It
// returns the errors of the inner driver and of the release.
func (d *Driver) Close() error {
	d.stop()
	err := d.inner.Close() // first, so that the lock covers everything that the inner driver still does
	if hold := d.take(); hold != nil {
		err = errors.Join(err, d.release(hold))
	}
	return err
}

// Lock locks the name, and waits in the queue while another process has it. If Lock does not get the lock within
// Options.Wait, or cannot reach the store for that long, the error matches database.ErrLocked. If this driver already
// has the lock or waits for it, Lock returns at once, with an error that matches database.ErrLocked. Other errors are
// dsync.ErrClosed, dsync.ErrMismatch and dsync.ErrRefused, and an error that reports that the driver was closed.
func (d *Driver) Lock() error {
	d.mu.Lock()
	if d.waiting || d.hold != nil {
		d.mu.Unlock()
		return fmt.Errorf("golangmigrate: lock %q: this driver already has it or waits for it: %w", d.name, database.ErrLocked)
	}
	d.waiting = true
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(d.open, d.wait)
	defer cancel()
	hold, err := d.locks.Mutex(d.name).Hold(ctx)

	d.mu.Lock()
	d.waiting = false
	closed := d.open.Err() != nil
	if err == nil && !closed {
		d.hold = hold
	}
	d.mu.Unlock()

	switch {
	case closed:
		// If Close came after Hold had succeeded, it found no hold in d, so release it here.
		if err == nil {
			err = d.release(hold)
		}
		return errors.Join(fmt.Errorf("golangmigrate: lock %q: the driver was closed", d.name), err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("golangmigrate: lock %q: not acquired within %v: %w: %w", d.name, d.wait, database.ErrLocked, err)
	case err != nil:
		return fmt.Errorf("golangmigrate: lock %q: %w", d.name, err)
	}
	return nil
}

// Unlock releases the lock. The error matches database.ErrNotLocked if this driver does not have
// it, dsync.ErrLost if it was lost, and dsync.ErrRefused if the store refuses to release it.
// Whatever the error, this driver no longer has the lock.
//
// If the store has not answered after 10 s, Unlock returns nil, and the release continues in the background. That is
// not an error: all migrations ran under the lock, and an error would make the migrate.Migrate unusable.
func (d *Driver) Unlock() error {
	hold := d.take()
	if hold == nil {
		return fmt.Errorf("golangmigrate: unlock %q: %w", d.name, database.ErrNotLocked)
	}
	return d.release(hold)
}

// take returns the hold, or nil if there is none, and removes it from d.
func (d *Driver) take() *dsync.Hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := d.hold
	d.hold = nil
	return hold
}

func (d *Driver) release(hold *dsync.Hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if err := hold.Release(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("golangmigrate: unlock %q: %w", d.name, err)
	}
	return nil
}

// Run calls the inner driver's Run, unless the lock was lost: then the error matches dsync.ErrLost.
// If Lock has not been called, Run calls the inner driver without a check, because golang-migrate's
// driver tests expect that. The same holds for SetVersion and Drop.
func (d *Driver) Run(migration io.Reader) error {
	if err := d.check("run a migration"); err != nil {
		return err
	}
	return d.inner.Run(migration)
}

// SetVersion calls the inner driver's SetVersion, unless the lock was lost: see [Driver.Run].
func (d *Driver) SetVersion(version int, dirty bool) error {
	if err := d.check(fmt.Sprintf("set version %d (dirty: %t)", version, dirty)); err != nil {
		return err
	}
	return d.inner.SetVersion(version, dirty)
}

// Drop calls the inner driver's Drop, which deletes everything in the database, unless the lock was
// lost: see [Driver.Run].
func (d *Driver) Drop() error {
	if err := d.check("drop"); err != nil {
		return err
	}
	return d.inner.Drop()
}

// Version returns the version that the inner driver reads. It needs no lock.
func (d *Driver) Version() (version int, dirty bool, err error) { return d.inner.Version() }

// check returns an error if this driver's hold was lost. It checks the clock, so it notices a loss
// even just after the process was frozen.
func (d *Driver) check(op string) error {
	d.mu.Lock()
	hold := d.hold
	d.mu.Unlock()
	if hold == nil {
		return nil
	}
	if ctx := hold.Context(context.Background()); ctx.Err() != nil { // unlike the channel Lost, the context has a cause
		return fmt.Errorf("golangmigrate: did not %s, because lock %q is no longer held: %w", op, d.name, context.Cause(ctx))
	}
	return nil
}
