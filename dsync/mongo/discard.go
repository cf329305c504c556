package mongo

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Discard implements [driver.Store]. It first sends one update, which changes nothing, but counts the records that have
// one of the claims: usually none. A read would not be safe. An update waits until a majority has all that the primary
// has written before, but a primary that was deposed may still answer it: see [driver.Store.Discard]. If there are such
// records, Discard reads them and releases their claims: all claims for which a short Release will probably do at the
// same time, so that their statements go together, and the others one by one.
func (s *store) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	byKey := make(map[string][]string)
	for _, c := range claims {
		id := keyID(c.Key)
		byKey[id] = append(byKey[id], c.ID)
	}
	var keys []string
	var statements bson.A
	for id, ids := range byKey {
		keys = append(keys, id)
		statements = append(statements, bson.D{e("q", append(bson.D{e("_id", id)}, among(ids)...)), e("u", bson.A{set(e("f", "$f"))})})
	}
	var refused error // the first error about some of the claims; the others are discarded nevertheless
	raw, err := s.write(ctx, bson.D{e("update", s.collection), e("updates", statements), e("ordered", false)})
	switch there, _, none := updated(raw); {
	case statementsFailed(err):
		refused = failure("discard", err)
	case err != nil:
		return nil, failure("discard", err)
	case none != nil || !there:
		return nil, none
	}
	records, err := s.claimsOf(ctx, keys, false, bson.D{e("h.a", 1), e("h.e", 1), e("h.l", 1), e("q.a", 1), e("t", 1), e("y", 1), e("c", 1)})
	if err != nil {
		return nil, failure("discard", err)
	}
	var (
		mu      sync.Mutex
		notices []driver.Notice
		wg      sync.WaitGroup
	)
	release := func(c driver.Claim) {
		done, err := s.editRelease(ctx, driver.Release{Claim: c})
		mu.Lock()
		defer mu.Unlock()
		notices, refused = append(notices, done.Notices...), cmp.Or(refused, err)
	}
	for _, c := range claims {
		r := records[keyID(c.Key)]
		if !r.has(c.ID) {
			continue
		}
		c = driver.Claim{Key: c.Key, ID: c.ID, Session: c.Session}
		switch {
		case r.alone() && s.server.bulks():
			c.Kind, c.Weight, c.Limit, c.Token, c.NoneWaiting = r.Kind, 1, 1, r.Token, true
			wg.Go(func() { release(c) })
		case ctx.Err() != nil: // the remaining claims are still there
			wg.Wait()
			return notices, cmp.Or(refused, failure("discard", ctx.Err()))
		default:
			release(c)
		}
	}
	wg.Wait()
	return notices, refused
}

// A claimsRecord has the fields of a key's record that show what became of claims.
type claimsRecord struct {
	ID      string         `bson:"_id"`
	Format  int            `bson:"f"`
	Holders []holderRecord `bson:"h"`
	Queue   []waiterRecord `bson:"q"`
	Token   int64          `bson:"t"`
	Kind    driver.Kind    `bson:"y"` // a hand-over of an election counts its terms
	Limit   int64          `bson:"c"`
}

// claimsOf reads the given fields of the records with those ids, and returns the records by id.
func (s *store) claimsOf(ctx context.Context, ids []string, majority bool, fields bson.D) (map[string]claimsRecord, error) {
	records := make(map[string]claimsRecord, len(ids))
	err := s.each(ctx, len(ids), majority, []bson.D{
		{e("$match", bson.D{e("_id", bson.D{e("$in", ids)})})},
		{e("$project", fields)},
	}, func(record bson.Raw) error {
		var r claimsRecord
		err := bson.Unmarshal(record, &r)
		records[r.ID] = r
		return err
	})
	return records, err
}

// held reports whether the claim holds the key.
func (r claimsRecord) held(claim string) bool {
	return slices.ContainsFunc(r.Holders, func(h holderRecord) bool { return h.Claim == claim })
}

// alone reports whether the record has one holder, for which a short Release will probably do, and nobody waits.
func (r claimsRecord) alone() bool {
	return r.Limit == 1 && len(r.Holders) == 1 && len(r.Queue) == 0 && !r.Holders[0].Yield
}

// has reports whether the claim holds the key without an end, or waits for it: the same condition as in among.
func (r claimsRecord) has(claim string) bool {
	return slices.ContainsFunc(r.Holders, func(h holderRecord) bool { return h.Claim == claim && h.Until.IsZero() }) ||
		slices.ContainsFunc(r.Queue, func(w waiterRecord) bool { return w.Claim == claim })
}

// among returns a filter for records in which one of the claims waits, or has a hold without an end.
func among(ids []string) bson.D {
	in := bson.D{e("$in", ids)}
	held := bson.D{e("$elemMatch", bson.D{e("a", in), e("e", bson.D{e("$exists", false)})})}
	return bson.D{e("$or", bson.A{bson.D{e("h", held)}, bson.D{e("q.a", in)}})}
}

// statementsFailed reports whether err means that statements of an update failed, and nothing else.
func statementsFailed(err error) bool {
	var w mongo.WriteException
	return errors.As(err, &w) && len(w.WriteErrors) > 0 && w.WriteConcernError == nil
}
