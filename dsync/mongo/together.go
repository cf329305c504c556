package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A shortEdit is what a short command does to the record with that _id.
type shortEdit struct {
	id    string
	claim driver.Claim  // its Token is that of the grant
	since time.Time     // for an Acquire: the time of the grant
	until time.Time     // for an Acquire: it has no effect after this time of the server's clock
	keep  time.Duration // for a Release with Keep
}

// maxTogether is how many records one statement changes at most. The server compares each record with the whole list.
const maxTogether = 64

// A togetherForm makes one statement of many edits.
type togetherForm struct {
	write    writeFunc
	majority bool // write waits for a majority
	pipeline func(sts []*statement) bson.A

	// done reports whether the edit was made, given the record afterwards, and an error if that does not show it.
	done func(edit shortEdit, r claimsRecord) (bool, error)
}

// together sends one statement for many records, or several. The server takes longer to parse a statement than to change a
// record, so this takes it a third of the time. But the reply has only the number of records that were changed. If that is
// not the number of edits, or a statement failed, together reads the records. If the read fails, the edits are in doubt.
//
// The read must see what the update has written, and after a majority write, nothing that a fail-over can undo.
func (s *store) together(ctx context.Context, form togetherForm, sts []*statement) []written {
	reply, err := s.updateTogether(ctx, form.write, form.pipeline, sts)
	if err == nil {
		_, _, err = updated(reply)
	}
	results, whole := make([]written, len(sts)), forAll(err)
	for i := range results {
		results[i] = written{changed: err == nil, reply: reply, err: whole}
	}
	n, _ := reply.Lookup("nModified").AsInt64OK()
	if err == nil && n == int64(len(sts)) || err != nil && !statementsFailed(err) {
		return results
	}
	records, bad := s.claimsOf(ctx, recordIDs(sts), form.majority, bson.D{e("f", 1), e("h.a", 1), e("t", 1)})
	for i, st := range sts {
		r := &results[i]
		if r.changed, r.err = false, nil; bad != nil {
			r.err = fmt.Errorf("%w: %v", errInDoubt, bad) // the error of the read must not count as one of the edit
		} else {
			r.changed, r.err = form.done(st.edit, records[st.edit.id])
		}
	}
	return results
}

// updateTogether sends the command of together.
func (s *store) updateTogether(ctx context.Context, write writeFunc, pipeline func([]*statement) bson.A, sts []*statement) (bson.Raw, error) {
	var updates []bson.D
	for some := range slices.Chunk(sts, maxTogether) {
		updates = append(updates, bson.D{
			e("q", bson.D{e("_id", bson.D{e("$in", recordIDs(some))})}), e("u", pipeline(some)), e("multi", true),
		})
	}
	return write(ctx, bson.D{e("update", s.collection), e("updates", updates), e("ordered", false)})
}

func recordIDs(sts []*statement) []string {
	ids := make([]string, len(sts))
	for i, st := range sts {
		ids[i] = st.edit.id
	}
	return ids
}

// releasesTogether returns a function that sends releases together.
func (s *store) releasesTogether(write writeFunc, majority bool) func(context.Context, []*statement) {
	alone, form := s.sideBySide(write, s.releasing), togetherForm{write, majority, releasingTogether, released}
	return func(ctx context.Context, sts []*statement) {
		if len(sts) == 1 {
			deliver(sts, alone(ctx, sts))
			return
		}
		results := s.together(ctx, form, sts)
		settleReleases(results)
		deliver(sts, results)
	}
}

// settleReleases resolves doubts about releases, from the number of records that were changed. If none was, no release was
// executed. Otherwise, each release that was executed is either known to be, or in doubt. So if these are as many, all were
// executed. If they are more, somebody has acquired such a key since, or a hold was lost before.
func settleReleases(results []written) {
	reply := results[0].reply
	n, counted := reply.Lookup("nModified").AsInt64OK()
	if _, err := reply.LookupErr("writeErrors"); !counted || err == nil {
		return // a statement that failed may have changed records that are not counted
	}
	executed := int64(0)
	for _, r := range results {
		if r.changed || r.err == errInDoubt {
			executed++
		}
	}
	for i := range results {
		switch r := &results[i]; {
		case r.err != nil && !errors.Is(r.err, errInDoubt): // nothing is known of the whole command
		case n == 0:
			r.changed, r.err = false, nil
		case n == executed && r.err == errInDoubt:
			r.changed, r.err = true, nil
		}
	}
}

// released reports whether the edit has released its claim. If the claim does not hold the key, and the key's last token
// is the claim's, nobody has held the key since. If the token is greater, the claim may have been lost before.
func released(edit shortEdit, r claimsRecord) (bool, error) {
	switch {
	case r.held(edit.claim.ID), r.Format > formatVersion:
		return false, nil
	case r.Token == edit.claim.Token:
		return true, nil
	}
	return false, errInDoubt
}

// acquiresTogether returns a function that sends Acquires together. One statement can't make many records. So first come
// statements side by side that each make a record, or one statement for those that exist: whichever suited most keys of the
// last bulk. The other follows for the rest.
func (s *store) acquiresTogether() func(context.Context, []*statement) {
	alone, making := s.sideBySide(s.write, s.acquiring), s.sideBySide(s.write, s.making)
	form := togetherForm{s.write, true, s.acquiringTogether, acquired}
	changing := func(ctx context.Context, sts []*statement) []written { return s.together(ctx, form, sts) }
	var exist atomic.Bool // most records of the last bulk existed
	return func(ctx context.Context, sts []*statement) {
		if len(sts) == 1 {
			deliver(sts, alone(ctx, sts))
			return
		}
		first, second := making, changing
		if exist.Load() {
			first, second = second, first
		}
		var rest []*statement
		for i, r := range first(ctx, sts) {
			if errors.Is(r.err, errNoMatch) || hasCode(r.err, codeConversion) {
				rest = append(rest, sts[i])
			} else {
				sts[i].result <- r
			}
		}
		if 2*len(rest) > len(sts) {
			exist.Store(!exist.Load())
		}
		if len(rest) > 0 {
			deliver(rest, second(ctx, rest))
		}
	}
}

// deliver passes the results to the callers.
func deliver(sts []*statement, results []written) {
	for i, r := range results {
		sts[i].result <- r
	}
}

// acquired reports whether the edit has granted its claim. The error is errNoMatch if there is no record.
func acquired(edit shortEdit, r claimsRecord) (bool, error) {
	if r.ID == "" {
		return false, errNoMatch
	}
	return r.held(edit.claim.ID) && r.Token == edit.claim.Token, nil
}
