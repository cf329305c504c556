package dsynctest

import (
	"slices"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// TestStore tests that a [driver.Store] does what the interface's comments promise. Each promise has a subtest
// named after it. A number like B08 in a name refers to a known defect of other lock systems.
//
//	func TestStore(t *testing.T) {
//		dsynctest.TestStore(t, func(t *testing.T) driver.Store { return open(t) })
//	}
//
// Every subtest calls newStore. The function may return the same Store each time, or different Stores on the same data,
// because each subtest uses new sessions and keys. Nothing else should use the data during the test, because the
// subtests of Sweep delete idle records. The subtests of Sweep run first, one by one; the others then run in
// parallel.
//
// TestStore takes seconds, or up to a minute if each command takes 50 ms. A greater value of go test's flag -parallel
// makes it faster. It checks the order of events and the times that the store reports. It does not depend on the
// store's speed, unless a command takes seconds. A store must send notices unless its Listen returns
// [errors.ErrUnsupported].
//
// TestStore can't test promises whose effects the interface does not show: an Acquire without changes writes nothing,
// the values in ctx are not used, and committed changes survive a fail-over. Nor does it test limits that take minutes
// to reach on a server: that at most 10,000 claims wait for a key, that Load shows all of them, and that 1,000 are
// notified when the key is sealed.
func TestStore(t *testing.T, newStore func(t *testing.T) driver.Store) {
	for _, c := range conformance() {
		t.Run(c.name, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			c.run(t, newStore(t))
		})
	}
}

// A conformanceCase is one promise of the Store interface.
type conformanceCase struct {
	name  string
	test  func(*env)
	alone bool // no other case may run at the same time, usually because the case deletes idle records
}

// conformance returns all cases, beginning with those that must run alone.
func conformance() []conformanceCase {
	return slices.Concat(
		sweepCases(),
		sessionCases(),
		memberCases(),
		expireCases(),
		revokeCases(),
		acquireCases(),
		queueCases(),
		expiredCases(),
		releaseCases(),
		keepCases(),
		sealCases(),
		resizeCases(),
		leaseCases(),
		publishCases(),
		keysCases(),
		observeCases(),
		noticeCases(),
		changeCases(),
		listenCases(),
		raceCases(),
		discardCases(),
		editCases(),
		scriptCases(),
		lateCases(),
	)
}

// run runs the case on a store. It takes a testing.TB, not a *testing.T, so that tests of the suite can collect a
// case's failures.
func (c conformanceCase) run(t testing.TB, store driver.Store) {
	t.Helper()
	e := newEnv(t, store)
	defer e.close()
	c.test(e)
}
