package measure

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// HeldMemory holds n locks, and returns how many bytes of this process's memory each takes on
// average, stacks included. The figure includes the lock's entry in the store, some 200 bytes,
// because the store is in the same memory.
func HeldMemory(n int) (float64, error) {
	s, err := sessionOn(dsynctest.NewMemory())
	if err != nil {
		return 0, err
	}
	defer s.Close(context.Background())
	held := make([]*dsync.Mutex, n)
	for i := range held {
		held[i] = s.Mutex(numbered(i))
		held[i].Lock()
	}
	with := inUse()
	for i, mu := range held {
		mu.Unlock()
		held[i] = nil
	}
	bytes := float64(with-inUse()) / float64(n)
	runtime.KeepAlive(held)
	return bytes, nil
}

// OneKey and OwnKeys choose the keys for [WaiterMemory]: the same key for all goroutines, or a
// different key for each.
func OneKey(int) string    { return "key" }
func OwnKeys(i int) string { return numbered(i) }

// WaiterMemory lets n goroutines wait for keys that another session holds, and returns how many bytes each takes on
// average. With OwnKeys, the goroutines begin to wait one after the other. If they began at the same time, the figure
// would include the buffers of many concurrent commands.
func WaiterMemory(n int, key func(int) string) (float64, error) {
	store := dsynctest.NewMemory()
	s, err := sessionOn(store)
	if err != nil {
		return 0, err
	}
	defer s.Close(context.Background())
	other, err := sessionOn(store)
	if err != nil {
		return 0, err
	}
	defer other.Close(context.Background())
	for i := range n {
		if !other.Mutex(key(i)).TryLock() {
			break // all keys are the same
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	without := inUse()
	for i := range n {
		wg.Go(func() { s.Mutex(key(i)).LockContext(ctx) })
		if err = awaitWaiter(store, key(i)); err != nil {
			break
		}
	}
	time.Sleep(time.Second) // for the other waiters: the store shows only one waiter of a session for each key
	bytes := float64(inUse()-without) / float64(n)
	cancel()
	wg.Wait()
	return bytes, err
}

// awaitWaiter waits until the key has a waiter in the store.
func awaitWaiter(store driver.Store, key string) error {
	for {
		st, err := store.Load(context.Background(), key, 1000)
		if err != nil || st.Waiting > 0 {
			return err
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// inUse returns how many bytes of heap and stacks are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // frees what the first one kept for finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func sessionOn(store driver.Store) (*dsync.Session, error) {
	return dsync.New(store, &dsync.Options{Retention: -1, Logger: slog.New(slog.DiscardHandler)})
}

func numbered(i int) string { return fmt.Sprintf("key %d", i) }
