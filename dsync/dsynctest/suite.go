package dsynctest

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
)

// TestStore tests that a [dsync.Store] does what the comments of the interface
// say, each promise in a subtest named after it. Names with a number like B08
// are known defects of such systems.
//
//	func TestStore(t *testing.T) {
//		dsynctest.TestStore(t, func(t *testing.T) dsync.Store { return open(t) })
//	}
//
// It calls newStore in every subtest, which may return the same Store, or one
// on the same data, each time: sessions and keys have names that are used once.
// Nobody else should use that data meanwhile, as the subtests of Sweep delete
// whatever is idle; these run first, one by one, and then the others in parallel.
//
// It takes seconds, and up to a minute where a command takes 50 ms; go test's
// -parallel shortens that. It depends on order and on the times that the store
// reports, never on its speed, unless a command takes seconds. Pushed events are
// required of a store whose Watch does not return [errors.ErrUnsupported].
//
// What cannot be seen through the interface is not tested: that an Acquire that
// changes nothing writes nothing, that values of ctx are not used, that what is
// reported survives a fail-over; nor, as it would take a server minutes, that
// not more than 10,000 claims wait in line, of which Load shows 1,000, Line all, and
// of which 1,000 are told that the key was sealed.
func TestStore(t *testing.T, newStore func(t *testing.T) dsync.Store) {
	for _, c := range conformance() {
		t.Run(c.name, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			c.run(t, newStore(t))
		})
	}
}

// TestStoreBubble is [TestStore] for stores in memory: each subtest runs in a
// bubble of testing/synctest of its own, and so takes no time. It calls newStore
// inside the bubble.
func TestStoreBubble(t *testing.T, newStore func(t *testing.T) dsync.Store) {
	for _, c := range conformance() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.run(t, newStore(t))
			})
		})
	}
}

// A conformanceCase is one promise of the Store interface.
type conformanceCase struct {
	name  string
	test  func(*env)
	alone bool // deletes what is idle, so other cases must not run at the same time
}

// conformance returns all cases, those that run alone first.
func conformance() []conformanceCase {
	return slices.Concat(
		sweepCases(),
		memberCases(),
		buryCases(),
		revokeCases(),
		acquireCases(),
		lineCases(),
		firstCases(),
		yieldCases(),
		mismatchCases(),
		deadCases(),
		releaseCases(),
		keepCases(),
		sealCases(),
		resizeCases(),
		formerCases(),
		leaseCases(),
		tokenCases(),
		termCases(),
		publishCases(),
		keysCases(),
		observeCases(),
		watchCases(),
		listenCases(),
		watchKeyCases(),
		raceCases(),
		lateCases(),
	)
}

// run runs the case on a store. With a testing.TB of which only the failures
// are of interest, the suite tests itself.
func (c conformanceCase) run(t testing.TB, store dsync.Store) {
	t.Helper()
	e := newEnv(t, store)
	defer e.close()
	c.test(e)
}
