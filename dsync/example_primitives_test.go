package dsync_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Any number of processes can read the catalogue at once, but only one can rebuild it.
func ExampleRWMutex() {
	store := dsynctest.NewMemory()
	web, _ := dsync.New(store, nil) // in a program, each process has one session
	defer web.Close(context.Background())
	batch, _ := dsync.New(store, nil)
	defer batch.Close(context.Background())

	reader, writer := web.RWMutex("catalogue"), batch.RWMutex("catalogue")

	reader.RLock()
	fmt.Println("rebuild while it is read:", writer.TryLock())
	reader.RUnlock()
	fmt.Println("rebuild:", writer.TryLock())
	fmt.Println("read while it is rebuilt:", reader.TryRLock())
	writer.Unlock()
	// Output:
	// rebuild while it is read: false
	// rebuild: true
	// read while it is rebuilt: false
}

// RLocker is for functions that take a sync.Locker. Its Lock read-locks.
func ExampleRWMutex_RLocker() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	rw := locks.RWMutex("catalogue")
	read := func(l sync.Locker) {
		l.Lock()
		defer l.Unlock()
		fmt.Println("reading; writing:", rw.TryLock())
	}
	read(rw.RLocker())
	// Output: reading; writing: false
}

// A service allows three connections, counted over all processes.
func ExampleSemaphore() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	conns := locks.Semaphore("service connections", 3)
	two, err := conns.Hold(ctx, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("two more:", conns.TryAcquire(2))
	fmt.Println("one more:", conns.TryAcquire(1))
	conns.Release(1)
	two.Release(ctx)

	fmt.Println(conns.Acquire(ctx, 4))
	// Output:
	// two more: false
	// one more: true
	// dsync: acquire 4 of semaphore "service connections": it must be from 1 to its size 3
}

// Do runs a function while it holds one connection. The function's context ends if the hold is
// lost.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	err := locks.Semaphore("service connections", 3).Do(ctx, 1, func(ctx context.Context) error {
		fmt.Println("calling, lost:", ctx.Err() != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// calling, lost: false
	// <nil>
}

// Do runs a function as the writer. The function's context ends if the lock is lost.
func ExampleRWMutex_Do() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	rw := locks.RWMutex("catalogue")
	err := rw.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("rebuilding; reading:", rw.TryRLock())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// rebuilding; reading: false
	// <nil>
}

// Each reader has a hold of its own.
func ExampleRWMutex_RHold() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	rw := locks.RWMutex("catalogue")
	one, _ := rw.RHold(ctx)
	other, _ := rw.RHold(ctx)
	one.Release(ctx)
	fmt.Println("one reads:", one.Token() > 0, "the other:", other.Token() > 0)
	other.Release(ctx)
	// Output: one reads: false the other: true
}

// The service now allows more connections. Processes of the old version keep running beside
// those of the new one.
func ExampleSemaphore_Resize() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	before, _ := dsync.New(store, nil)
	defer before.Close(ctx)
	after, _ := dsync.New(store, nil)
	defer after.Close(ctx)

	old := before.Semaphore("service connections", 3)
	old.Acquire(ctx, 3)

	conns := after.Semaphore("service connections", 5)
	_, err := conns.TryHold(ctx, 1)
	fmt.Println(err)

	if err := conns.Resize(ctx, 5); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("after Resize:", conns.TryAcquire(2))
	conns.Release(2)
	old.Release(3)
	// Output:
	// dsync: try to acquire 1 of semaphore "service connections": dsync: semaphore "service connections" is in use with size 3, not 5
	// after Resize: true
}

// Every process of a new version starts with the migration, which runs once.
func ExampleOnce_Do() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	for range 3 { // three processes, one after the other
		locks, _ := dsync.New(store, nil)
		err := locks.Once("migration 42").Do(ctx, func(ctx context.Context) error {
			// ctx ends when the hold is lost, so pass it on. The token protects data that a run must not change
			// after its hold is lost.
			fmt.Println("migrating, token:", dsync.HoldFrom(ctx).Token() > 0)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
		locks.Close(ctx)
	}
	// Output: migrating, token: true
}

// The secret that the first process makes up is used by all processes from then on.
func ExampleOnce_DoValue() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	for _, name := range []string{"web-1", "web-2"} {
		locks, _ := dsync.New(store, nil)
		secret, err := locks.Once("secret").DoValue(ctx, func(context.Context) ([]byte, error) {
			return []byte("made by " + name), nil
		})
		fmt.Printf("%s: %s, %v\n", name, secret, err)
		locks.Close(ctx)
	}
	// Output:
	// web-1: made by web-1, <nil>
	// web-2: made by web-1, <nil>
}

// Value reports whether a migration was done, without running it.
func ExampleOnce_Value() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	once := locks.Once("migration 42")
	_, done, err := once.Value(ctx)
	fmt.Println(done, err)
	once.Do(ctx, func(context.Context) error { return nil })
	_, done, err = once.Value(ctx)
	fmt.Println(done, err)
	// Output:
	// false <nil>
	// true <nil>
}

// Three hosts have the same crontab. Each calls Do with the scheduled time; the job runs on one of the hosts.
func ExamplePeriodic_Do() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	tick := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC) // not time.Now(), which differs between hosts
	for _, host := range []string{"a", "b", "c"} {
		locks, _ := dsync.New(store, nil)
		ran, err := locks.Periodic("nightly").Do(ctx, tick, func(ctx context.Context) error {
			fmt.Println("backing up")
			return nil
		})
		fmt.Println(host, ran, err)
		locks.Close(ctx)
	}
	// Output:
	// backing up
	// a true <nil>
	// b false <nil>
	// c false <nil>
}

// Every host shows last night's report, although only one host made it.
func ExamplePeriodic_DoValue() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	tick := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
	for _, host := range []string{"a", "b"} {
		locks, _ := dsync.New(store, nil)
		report, ran, err := locks.Periodic("nightly").DoValue(ctx, tick, func(ctx context.Context) ([]byte, error) {
			return []byte("17 invoices, by " + host), nil
		})
		fmt.Printf("%s: %s; made here: %t, %v\n", host, report, ran, err)
		locks.Close(ctx)
	}
	// Output:
	// a: 17 invoices, by a; made here: true, <nil>
	// b: 17 invoices, by a; made here: false, <nil>
}

// A run also covers the runs that were missed before it: its period begins where the period of the last successful
// run ended.
func ExamplePeriodic_Last() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	hourly := locks.Periodic("hourly report")
	report := func(tick time.Time) {
		_, err := hourly.Do(ctx, tick, func(ctx context.Context) error {
			from, _, err := hourly.Last(ctx)
			if err != nil {
				return err
			}
			if from.IsZero() { // the first run
				from = tick.Add(-time.Hour)
			}
			fmt.Printf("from %s to %s\n", from.Format("15:04"), tick.Format("15:04"))
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	report(day.Add(1 * time.Hour))
	report(day.Add(2 * time.Hour))
	report(day.Add(5 * time.Hour)) // all hosts were down at 03:00 and 04:00
	report(day.Add(4 * time.Hour)) // too late: a later tick has already succeeded
	// Output:
	// from 00:00 to 01:00
	// from 01:00 to 02:00
	// from 02:00 to 05:00
}
