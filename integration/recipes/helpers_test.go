// Package recipes_test contains the code of docs/recipes.md, one recipe per file, and its tests,
// which need no server. See docs.TestCodeIsFromExamples.
package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/leader"
)

// process returns a session on the shared store, as another process would have.
func process(t testing.TB, store driver.Store, name string) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// cuttable returns a link to the store. A test can cut the link to simulate a crash.
func cuttable(t testing.TB, store driver.Store) *dsynctest.Faulty {
	f := dsynctest.NewFaulty(store, nil)
	t.Cleanup(f.Close)
	return f
}

func elect(t testing.TB, locks *dsync.Session, name string) *leader.Election {
	t.Helper()
	e, err := leader.New(locks, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// nobody(t, store, key) checks that the key has no holder and no waiter, and that no session is registered. The
// caller must be in a bubble.
func nobody(t testing.TB, store driver.Store, key string) {
	t.Helper()
	synctest.Wait()
	st, err := store.Load(context.Background(), key, 1000)
	if err != nil || len(st.Holders) != 0 || st.Waiting != 0 {
		t.Errorf("%q is held by %v, with %d waiting; error %v", key, st.Holders, st.Waiting, err)
	}
	members, _, err := storecmd.Members(context.Background(), store)
	if err != nil || len(members) != 0 {
		t.Errorf("registered: %v, error %v", members, err)
	}
}
