package dsynctest

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// forget sends a Forget, which must not fail.
func (e *env) forget(key string, token int64, want bool) {
	e.Helper()
	before := e.seen
	forgot, notices, err := storecmd.Forget(e.ctx, e.store, key, token)
	if err != nil || forgot != want {
		e.Fatalf("Forget(%d) = %t, %v; want %t", token, forgot, err, want)
	}
	e.noticed(driver.Claim{Key: key}, before, notices)
}

// once returns a new claim of KindOnce.
func (e *env) once(key, session string) driver.Claim {
	c := e.claim(key, session)
	c.Kind = driver.KindOnce
	return c
}
