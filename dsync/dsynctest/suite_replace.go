package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// replace releases the old claim and acquires the next one in one edit.
func (e *env) replace(old, next driver.Claim, notAfter time.Time) driver.State {
	e.Helper()
	if h, ok := e.load(old.Key).Holder(old.ID); ok {
		old.Token, old.NoneWaiting = h.Token, e.alone[old.ID]
	}
	return e.join(driver.Edit{Release: &driver.Release{Claim: old}, Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: notAfter}})
}
