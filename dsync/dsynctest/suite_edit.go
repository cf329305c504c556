package dsynctest

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// editCases test what no Edit may be.
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
	join := &driver.Join{Claim: next, Wait: true, NotAfter: e.far}
	for name, edit := range map[string]driver.Edit{
		"nothing":                       {},
		"Leave and Extend":              {Leave: &driver.Leave{Claim: held}, Extend: &driver.Extend{Claim: held}},
		"Join and Publish":              {Join: join, Publish: &driver.Publish{Claim: held, Seq: 1, Value: []byte("value")}},
		"Leave, Join and Resize":        {Leave: &driver.Leave{Claim: held}, Join: join, Resize: &driver.Resize{Key: held.Key, Kind: held.Kind, Limit: 2}},
		"Leave with Keep, and Join":     {Leave: &driver.Leave{Claim: held, Keep: long}, Join: join},
		"Leave with Seal, and Join":     {Leave: &driver.Leave{Claim: held, Seal: 1}, Join: join},
		"Leave to next, and Join":       {Leave: &driver.Leave{Claim: held, Successor: next.ID}, Join: join},
		"Leave and Join of another key": {Leave: &driver.Leave{Claim: held}, Join: &driver.Join{Claim: other, Wait: true, NotAfter: e.far}},
	} {
		done, err := e.store.Edit(e.ctx, edit)
		if !errors.Is(err, driver.ErrRefused) || done.Left || len(done.Notices) > 0 {
			e.Errorf("Edit of %s = %+v, %v; want ErrRefused", name, done, err)
		}
	}
	s := e.load(held.Key)
	e.wantHolders(s, held)
	e.wantQueue(s)
	e.wantFree(other.Key)
	if s.Value != nil || s.Limit != 1 || !s.Holders[0].Until.IsZero() {
		e.Errorf("after edits that were refused the key is %+v", s)
	}
}
