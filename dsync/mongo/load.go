package mongo

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// facet returns stages whose result has the server's time even if nothing is found. A find could not return the
// time without a document.
func facet(project bson.D, find ...bson.D) []bson.D {
	return append(find,
		bson.D{e("$facet", bson.D{e("found", bson.A{bson.D{e("$project", project)}})})},
		set(e("now", now)),
	)
}

// A reading is the result of a facet: what it found, and when.
type reading[T any] struct {
	Now   time.Time `bson:"now"`
	Found []T       `bson:"found"`
}

// readFacet runs the stages of a facet. While the database does not exist, a mongos returns no document at all;
// readFacet then takes the time from hello.
func readFacet[T any](ctx context.Context, s *store, majority bool, stages []bson.D) (reading[T], error) {
	var r []reading[T]
	if err := s.aggregate(ctx, &r, majority, stages...); err != nil {
		return reading[T]{}, err
	}
	if len(r) == 0 {
		v, err := s.hello(ctx)
		return reading[T]{Now: v.now}, err
	}
	return r[0], nil
}

// Load implements [driver.Store]. A queue of 10,000 claims without values is about 1 MB.
func (s *store) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	st, err := s.load(ctx, keyID(key), key, min(max(waiters, 1), driver.MaxQueue))
	if err != nil {
		return driver.State{}, failure("load", err)
	}
	return st, nil
}

func (s *store) load(ctx context.Context, id, key string, shown int) (driver.State, error) {
	project := append(seen(waiting()), e("f", 1), e("ahead", op("$slice", list("$q"), shown)))
	r, err := readFacet[keyRecord](ctx, s, true, facet(project, bson.D{e("$match", bson.D{e("_id", id)})}))
	if err != nil || len(r.Found) == 0 {
		return driver.State{Key: key, Now: r.Now}, err
	}
	return r.Found[0].known(key)
}

// known returns the record's state, or an error if a later version of this library wrote the record. It is
// for reads; pipelines that write make this check themselves.
func (r *keyRecord) known(key string) (driver.State, error) {
	if r.Format > formatVersion {
		return driver.State{}, fmt.Errorf("%w: the record of the key %q has format %d, but this version knows only %d; upgrade this library",
			driver.ErrRefused, key, r.Format, formatVersion)
	}
	return r.state(key), nil
}

// maxKeys is the maximum number of keys that one call of Keys reads.
const maxKeys = 1_000

// Keys implements [driver.Store]. If large values were published with the keys, Keys may send more than one command,
// but never for a query with Session.
func (s *store) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	states, err := s.keys(ctx, q)
	if err != nil {
		return nil, failure("keys", err)
	}
	return states, nil
}

func (s *store) keys(ctx context.Context, q driver.KeyQuery) (states []driver.State, err error) {
	n := min(q.Limit, maxKeys)
	var within bson.D
	switch {
	case len(q.Keys) > maxKeys:
		return nil, fmt.Errorf("%w: Keys has %d keys; it may have at most %d", driver.ErrRefused, len(q.Keys), maxKeys)
	case len(q.Keys) > 0:
		n = len(q.Keys)
		ids := make(bson.A, 0, n)
		for _, key := range q.Keys {
			ids = append(ids, keyID(key))
		}
		within = bson.D{e("$in", ids)}
	case n < 1:
		return nil, nil
	case !utf8.ValidString(q.Prefix) || !utf8.ValidString(q.After):
		return nil, fmt.Errorf("%w: the prefix %q or the key %q is not valid UTF-8, but every key is", driver.ErrRefused, q.Prefix, q.After)
	default:
		within = bson.D{e("$gte", keyID(q.Prefix)), e("$lt", successor(keyID(q.Prefix))), e("$gt", keyID(q.After))}
	}
	// A record without a kind has had no claims. It was created for a mark, or for a command that added no claim.
	stages := []bson.D{
		{e("$match", bson.D{e("_id", within), e("y", bson.D{e("$exists", true)})})},
		{e("$sort", bson.D{e("_id", 1)})},
		{e("$limit", n)},
	}
	if q.Session == "" {
		stages = append(stages, bson.D{e("$project", append(seen(waiting())[1:], e("f", 1), e("ahead", op("$slice", list("$q"), maxAhead))))})
	} else {
		stages = append(stages,
			bson.D{e("$project", bson.D{e("f", 1), e("h", filter(list("$h"), op("$eq", "$$this.s", literal(q.Session))))})},
			bson.D{e("$project", bson.D{e("f", 1), e("h.a", 1), e("h.s", 1), e("h.t", 1), e("h.e", 1)})})
	}
	err = s.each(ctx, n, true, stages, func(record bson.Raw) error {
		var r struct {
			ID  string    `bson:"_id"`
			Key keyRecord `bson:",inline"`
		}
		if err := bson.Unmarshal(record, &r); err != nil {
			return fmt.Errorf("decode the record: %w", err)
		}
		st, err := r.Key.known(strings.TrimPrefix(r.ID, keyID("")))
		if err != nil {
			return err
		}
		states = append(states, st)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// each runs a pipeline with at most n results, and calls f for each of them until f fails. Without n, the server would
// put at most 101 results into the first batch. If the results are too large for one batch, each asks for further ones.
func (s *store) each(ctx context.Context, n int, majority bool, stages []bson.D, f func(bson.Raw) error) error {
	raw, err := marshal(s.read(stages, bson.D{e("batchSize", n+1)}, majority))
	if err != nil {
		return fmt.Errorf("encode aggregate: %w", err)
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	ctx, done, err := s.connection(ctx)
	if err != nil {
		return err
	}
	defer done()
	ctx = noValues{ctx}
	cursor, err := s.db.RunCommandCursor(ctx, bson.Raw(raw))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = cursor.Close(ctx) // the cursor is still open only after an error
	}()
	for cursor.Next(ctx) {
		if err := f(cursor.Current); err != nil {
			return err
		}
	}
	return cursor.Err()
}

// successor returns the first string, in byte order, after all strings that begin with p. BSON
// strings are UTF-8, so byte order is the order of the runes.
func successor(p string) string {
	for {
		r, size := utf8.DecodeLastRuneInString(p)
		p = p[:len(p)-size]
		switch r {
		case utf8.MaxRune:
			continue // p begins with the record's kind, so it also has a smaller rune
		case 0xD7FF:
			r = 0xDFFF // skip the surrogates, which are not valid runes
		}
		return p + string(r+1)
	}
}
