package dsynctest

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// editCases test invalid Edits.
func editCases() []conformanceCase {
	return []conformanceCase{
		{name: "Edit/RefusesPartsThatCannotBeCombined", test: testEditParts},
	}
}

func testEditParts(e *env) {
	session := e.session()
	held, other := e.claim(newID(), session), e.claim(newID(), session)
	held.Token = e.hold(held).Token
	next := e.claim(held.Key, session)
	join := &driver.Acquire{Claim: next, Wait: true, NotAfter: e.far}
	for name, edit := range map[string]driver.Edit{
		"nothing":                            {},
		"Release and Extend":                 {Release: &driver.Release{Claim: held}, Extend: &driver.Extend{Claim: held}},
		"Acquire and Publish":                {Acquire: join, Publish: &driver.Publish{Claim: held, Seq: 1, Value: []byte("value")}},
		"Release, Acquire and Resize":        {Release: &driver.Release{Claim: held}, Acquire: join, Resize: &driver.Resize{Key: held.Key, Kind: held.Kind, Limit: 2}},
		"Release with Keep, and Acquire":     {Release: &driver.Release{Claim: held, Keep: long}, Acquire: join},
		"Release with Seal, and Acquire":     {Release: &driver.Release{Claim: held, Seal: 1}, Acquire: join},
		"Release to next, and Acquire":       {Release: &driver.Release{Claim: held, Successor: next.ID}, Acquire: join},
		"Release and Acquire of another key": {Release: &driver.Release{Claim: held}, Acquire: &driver.Acquire{Claim: other, Wait: true, NotAfter: e.far}},
	} {
		done, err := e.store.Edit(e.ctx, edit)
		if !errors.Is(err, driver.ErrRefused) || done.Found || len(done.Notices) > 0 {
			e.Errorf("Edit of %s = %+v, %v; want ErrRefused", name, done, err)
		}
	}
	s := e.load(held.Key)
	e.wantHolders(s, held)
	e.wantQueue(s)
	e.wantFree(other.Key)
	if s.Value != nil || s.Limit != 1 || !s.Holders[0].Until.IsZero() {
		e.Errorf("after refused edits the key is %+v", s)
	}
}
