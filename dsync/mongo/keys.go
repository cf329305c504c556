package mongo

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxKeys is how many keys one Keys reads.
const maxKeys = 1_000

// Keys implements [dsync.Store]. Keys of which much was published may take more
// than the one command.
func (s *Store) Keys(ctx context.Context, prefix, after string, n int) ([]dsync.State, error) {
	states, err := s.keys(ctx, prefix, after, min(n, maxKeys))
	if err != nil {
		return nil, failure("keys", err)
	}
	return states, nil
}

func (s *Store) keys(ctx context.Context, prefix, after string, n int) (states []dsync.State, err error) {
	switch {
	case n < 1:
		return nil, nil
	case !utf8.ValidString(prefix) || !utf8.ValidString(after):
		return nil, fmt.Errorf("%w: %q or %q is not UTF-8, as all keys are", dsync.ErrRefused, prefix, after)
	}
	ctx, cancel := limited(bare{ctx})
	defer cancel()
	within := bson.D{e("$gte", keyID(prefix)), e("$lt", successor(keyID(prefix))), e("$gt", keyID(after))}
	raw, err := bson.Marshal(s.read([]bson.D{
		// A record without a kind was made for a command that joined nothing.
		{e("$match", bson.D{e("_id", within), e("y", bson.D{e("$exists", true)})})},
		{e("$sort", bson.D{e("_id", 1)})},
		{e("$limit", n)},
		{e("$project", append(seen()[1:], e("f", 1), e("ahead", op("$slice", list("$q"), maxAhead))))},
	}, bson.D{e("batchSize", n+1)}, true))
	if err != nil {
		return nil, fmt.Errorf("encode aggregate: %w", err)
	}
	cursor, err := s.db.RunCommandCursor(ctx, bson.Raw(raw))
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = cursor.Close(ctx) // nothing is left to close but after an error
	}()
	for cursor.Next(ctx) {
		var r struct {
			ID  string    `bson:"_id"`
			Key keyRecord `bson:",inline"`
		}
		if err := bson.Unmarshal(cursor.Current, &r); err != nil {
			return nil, fmt.Errorf("decode the record: %w", err)
		}
		st, err := r.Key.known(strings.TrimPrefix(r.ID, keyID("")))
		if err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	return states, cursor.Err()
}

// successor is the first string in the order of bytes behind all those that begin
// with p. Strings of BSON are UTF-8, whose order is that of the runes.
func successor(p string) string {
	for {
		r, size := utf8.DecodeLastRuneInString(p)
		p = p[:len(p)-size]
		switch r {
		case utf8.MaxRune:
			continue // p begins with a kind of record, which comes before
		case 0xD7FF:
			r = 0xDFFF // surrogates are none
		}
		return p + string(r+1)
	}
}
