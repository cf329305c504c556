package dsynctest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// E12: programs can use stores other than MongoDB. Memory, which ships with the module, passes the conformance
// suite.
func TestMemoryConforms(t *testing.T) {
	dsynctest.RunInBubbles(t, func(*testing.T) driver.Store { return dsynctest.NewMemory() })
}

// B07: the suite passes on a store whose clock is far from the host's.
func TestSkewedPollingMemoryConforms_B07(t *testing.T) {
	dsynctest.RunInBubbles(t, func(*testing.T) driver.Store {
		m := dsynctest.NewMemory()
		m.Polling = true
		m.Skew(-time.Hour)
		return m
	})
}

// The suite does not depend on the store's speed.
func TestSlowStoreConforms(t *testing.T) {
	dsynctest.RunInBubbles(t, func(t *testing.T) driver.Store {
		random := rand.New(rand.NewPCG(1, 2))
		f := dsynctest.NewFaulty(dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			fault := dsynctest.Fault{Delay: time.Duration(random.IntN(60)) * time.Millisecond}
			if r.Method != dsynctest.MethodListen {
				fault.ReplyDelay = time.Duration(random.IntN(20)) * time.Millisecond
			}
			return fault
		})
		t.Cleanup(f.Close)
		return f
	})
}

// All cases share one Memory, as they would share a database, in parallel and on the host's clock.
func TestSharedMemoryConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	m := dsynctest.NewMemory()
	dsynctest.TestStore(t, func(*testing.T) driver.Store { return m })
}
