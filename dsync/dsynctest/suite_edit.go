package dsynctest

import (
	"errors"
	"strings"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// editCases test Edits that a store must refuse. Each case has a claim that holds a key, and another claim of the key
// that does not wait yet.
func editCases() []conformanceCase {
	var cases []conformanceCase
	tooLong, tooLongForAClaim := []byte(strings.Repeat("v", 64<<10+1)), strings.Repeat("v", driver.MaxClaimValue+1)
	for _, refused := range []struct {
		name  string
		edits func(e *env, held, next driver.Claim) []driver.Edit
	}{
		{"Edit/RefusesPartsThatCannotBeCombined", func(e *env, held, next driver.Claim) []driver.Edit {
			join, other := &driver.Acquire{Claim: next, Wait: true, NotAfter: e.far}, e.claim(newID(), held.Session)
			return []driver.Edit{
				{},
				{Release: &driver.Release{Claim: held}, Extend: &driver.Extend{Claim: held, Seq: 1}},
				{Acquire: join, Publish: &driver.Publish{Claim: held, Seq: 2, Value: []byte("value")}},
				{Release: &driver.Release{Claim: held}, Acquire: join, Resize: &driver.Resize{Key: held.Key, Kind: held.Kind, Limit: 2}},
				{Release: &driver.Release{Claim: held, Keep: long}, Acquire: join},
				{Release: &driver.Release{Claim: held, Seal: 1}, Acquire: join},
				{Release: &driver.Release{Claim: held, Successor: next.ID}, Acquire: join},
				{Release: &driver.Release{Claim: held}, Acquire: &driver.Acquire{Claim: other, Wait: true, NotAfter: e.far}},
			}
		}},
		{"Extend/NumberBelow1IsRefused", func(_ *env, held, _ driver.Claim) []driver.Edit {
			return []driver.Edit{{Extend: &driver.Extend{Claim: held}}, {Extend: &driver.Extend{Claim: held, Seq: -1}}}
		}},
		{"Publish/MoreThan64KiBIsRefused", func(_ *env, held, _ driver.Claim) []driver.Edit {
			return []driver.Edit{{Publish: &driver.Publish{Claim: held, Seq: 100, Value: tooLong}}}
		}},
		{"Publish/ClaimsOfMoreThan256BytesAreRefused", func(e *env, _, next driver.Claim) []driver.Edit {
			next.Value = tooLongForAClaim
			return []driver.Edit{
				{Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: e.far}}, {Acquire: &driver.Acquire{Claim: next, NotAfter: e.far}},
			}
		}},
		{"Seal/MoreThan64KiBIsRefused", func(_ *env, held, _ driver.Claim) []driver.Edit {
			return []driver.Edit{{Release: &driver.Release{Claim: held, Seal: 1, Result: tooLong}}}
		}},
		{"Tick/NegativeIsRefused", func(e *env, held, next driver.Claim) []driver.Edit {
			next.Tick = -1
			return []driver.Edit{
				{Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: e.far}}, {Release: &driver.Release{Claim: held, Seal: -1}},
			}
		}},
	} {
		cases = append(cases, conformanceCase{name: refused.name, test: func(e *env) { e.refuses(refused.edits) }})
	}
	return cases
}

// refuses checks that the store refuses edits, and that they change nothing.
func (e *env) refuses(edits func(e *env, held, next driver.Claim) []driver.Edit) {
	e.Helper()
	key, session := newID(), e.session()
	held, next := e.claim(key, session), e.claim(key, session)
	held.Token = e.hold(held).Token
	e.publish(held, []byte("published"))
	for i, edit := range edits(e, held, next) {
		done, err := e.store.Edit(e.ctx, edit)
		if !errors.Is(err, driver.ErrRefused) || done.Found || len(done.Notices) > 0 {
			e.Errorf("edit %d = %+v, %v; want ErrRefused", i, done, err)
		}
		s := e.load(key)
		e.wantHolders(s, held)
		e.wantQueue(s)
		e.wantValue(s, []byte("published"))
		if s.Limit != 1 || s.Sealed != 0 || s.Token != held.Token || !s.Holders[0].Until.IsZero() {
			e.Errorf("after the refused edit %d the key is %+v", i, s)
		}
		if edit.Acquire != nil && edit.Acquire.Claim.Key != key {
			e.wantFree(edit.Acquire.Claim.Key)
		}
	}
}
