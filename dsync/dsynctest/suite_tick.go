package dsynctest

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// tickCases test claims with a Tick; the claims of sealCases have none.
func tickCases() []conformanceCase {
	return []conformanceCase{
		{name: "Tick/NegativeIsRefused", test: testTickNegative},
	}
}

func testTickNegative(e *env) {
	key, session := newID(), e.session()
	c := e.claim(key, session)
	c.Kind, c.Tick = driver.KindPeriodic, -1
	if _, _, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Acquire for tick -1: %v, want ErrRefused", err)
	}
	c.Tick = 1
	e.hold(c)
	if _, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{Seal: -1}); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Release with Seal -1: %v, want ErrRefused", err)
	}
	e.wantHolders(e.load(key), c)
}
