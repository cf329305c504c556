package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const defaultField = "fence"

// A Collection writes the documents of a collection under fencing tokens. In one atomic step, the server checks
// that the document has not seen a greater token, applies the write, and stores the write's token in the document.
// A write that comes too late changes nothing and returns [ErrStale].
//
//	orders := fence.New(db.Collection("orders"), nil)
//	…
//	mu := locks.Mutex("order 7")
//	mu.Lock()
//	defer mu.Unlock()
//	res, err := orders.UpdateOne(ctx, mu.Token(), bson.D{{"_id", 7}}, bson.D{{"$set", bson.D{{"paid", true}}}})
//
// All writers of these documents must use a Collection, and all writers of one document the tokens of the same key. A
// write with the same token as the last one is applied, because it comes from the same holder.
//
// A new holder's first write stores its token in the document. From then on the holder is safe from earlier holders. A
// holder that reads a document and then decides what to write should call [Collection.RaiseToken] first; otherwise a
// late write may come between its read and its write.
//
// # What it does to documents and writes
//
// The token is kept in a field of the document, as an int64. A document without the field, or with null in it, has seen
// no token. If the field has anything else that is not a number, even an array of numbers, every write is refused with
// a [StaleError] whose Seen is 0. The field belongs to the Collection: an update that names it is an error, and a
// replacement's value for it is overwritten.
//
// Writes are acknowledged by a majority, whatever the collection's own write concern, because a fail-over could
// undo any other write together with its token. A standalone that is killed can still lose the writes that it
// acknowledged in the last tenth of a second; a replica set of one member loses none. If ctx carries a transaction,
// writes are part of it and use its write concern, which should be majority.
//
// If a write matches no document, a read finds out why. If a document matches the filter but has seen a greater
// token, the error is [ErrStale]. If no document matches the filter, there is no error, as with the driver's
// methods. If several documents match, one of those that have seen no greater token is written.
//
// A Collection has no mutable state. Its methods may be called concurrently.
type Collection struct {
	documents *mongo.Collection
	field     string
}

// Options are the settings of a [Collection]. The zero value of each field is its
// default; a nil *Options is all defaults.
type Options struct {
	// Field is the name of the field that keeps the token, at the top level of the documents.
	// Default "fence".
	Field string
}

// New returns a [Collection] that writes to documents. It panics if documents is nil, or if opt.Field is "_id",
// contains '.' or NUL, or begins with '$'.
func New(documents *mongo.Collection, opt *Options) *Collection {
	field := defaultField
	if opt != nil && opt.Field != "" {
		field = opt.Field
	}
	switch {
	case documents == nil:
		panic("fence: New: the collection is nil; pass one, as db.Collection(\"orders\")")
	case field == "_id", strings.HasPrefix(field, "$"), strings.ContainsAny(field, ".\x00"):
		panic(fmt.Sprintf("fence: New: the field can't be %q; it must not be _id, contain '.' or NUL, or begin with '$'", field))
	}
	return &Collection{
		documents: documents.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()).
			// After a refused write, a read goes to the primary, which refused the write. The read must see what the
			// write saw, even if no majority has it yet.
			SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Local())),
		field: field,
	}
}

// UpdateOne applies an update, either operators or a pipeline, to one document that matches the filter and has not
// seen a greater token. The update is a [bson.D], a [bson.Raw], a map, or a slice of stages, such as
// mongo.Pipeline. A MatchedCount of 0 without an error means that no document matches the filter.
func (c *Collection) UpdateOne(ctx context.Context, token int64, filter, update any) (*mongo.UpdateResult, error) {
	stamped, err := c.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	return c.update(ctx, token, filter, stamped)
}

// ReplaceOne replaces one document that matches the filter and has not seen a greater token. The document keeps its
// _id and gets the new token. A MatchedCount of 0 without an error means that no document matches the filter.
func (c *Collection) ReplaceOne(ctx context.Context, token int64, filter, replacement any) (*mongo.UpdateResult, error) {
	if err := checkReplacement(replacement); err != nil {
		return nil, err
	}
	// The driver encodes a replacement within a pipeline with the client's registry, as its own ReplaceOne would.
	return c.update(ctx, token, filter, mongo.Pipeline{
		{e("$replaceWith", bson.D{e("$literal", inside(replacement))})},
		c.stamp(token),
	})
}

// RaiseToken stores the token in one document that matches the filter and has not seen a greater token, and changes
// nothing else. From then on no write of an earlier holder is applied. Call RaiseToken before reading the document,
// if what you write depends on what you read. A MatchedCount of 0 without an error means that no document matches
// the filter.
func (c *Collection) RaiseToken(ctx context.Context, token int64, filter any) (*mongo.UpdateResult, error) {
	return c.update(ctx, token, filter, bson.D{e("$max", bson.D{e(c.field, token)})})
}

// DeleteOne deletes one document that matches the filter and has not seen a greater token. The token is deleted
// with the document, so a late [Collection.Upsert] or [Collection.InsertOne] of an older holder can create the
// document again. If that matters, mark the document as deleted with an update, and delete it later, when no
// earlier holder can still write. A DeletedCount of 0 without an error means that no document matches the filter.
func (c *Collection) DeleteOne(ctx context.Context, token int64, filter any) (*mongo.DeleteResult, error) {
	if err := c.check(token, filter); err != nil {
		return nil, err
	}
	res, err := c.documents.DeleteOne(ctx, c.unseenBy(token, filter))
	if err != nil || res.DeletedCount > 0 {
		return res, err
	}
	return res, c.stale(ctx, token, filter)
}

// InsertOne inserts a document with the token in it. It returns [ErrStale] only for a token that is not positive,
// because there is no earlier token to compare with. If a document with the same _id exists, it returns the driver's
// error for a duplicate key. The document is a [bson.D], a [bson.Raw] or a map; for other types see [bson.Marshal].
func (c *Collection) InsertOne(ctx context.Context, token int64, document any) (*mongo.InsertOneResult, error) {
	stamped, err := c.stampDocument(document, token)
	if err != nil {
		return nil, err
	}
	if token <= 0 {
		return nil, &StaleError{Collection: c.documents.Name(), Token: token}
	}
	return c.documents.InsertOne(ctx, stamped)
}

// upsertTries is how often Upsert tries while it can neither find nor insert the document.
const upsertTries = 3

// Upsert is like [Collection.UpdateOne] for the document with the given _id, but inserts the document if there is
// none. For a duplicate key in another index, it returns the driver's error.
func (c *Collection) Upsert(ctx context.Context, token int64, id, update any) (*mongo.UpdateResult, error) {
	stamped, err := c.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	filter := bson.D{e("_id", id)}
	if err := c.check(token, filter); err != nil {
		return nil, err
	}
	// A document that has seen a greater token does not match. The server then tries to insert another one with the
	// same _id, and fails with a duplicate key. The same happens if somebody else inserts the document at the same
	// time, but then the next try matches.
	for try := 1; ; try++ {
		res, err := c.documents.UpdateOne(ctx, c.unseenBy(token, filter), stamped, options.UpdateOne().SetUpsert(true))
		if err == nil || !mongo.IsDuplicateKeyError(err) {
			return res, err
		}
		var stale *StaleError
		if why := c.stale(ctx, token, filter); errors.As(why, &stale) {
			return nil, stale
		} else if why != nil || try == upsertTries {
			return nil, err
		}
	}
}

func (c *Collection) update(ctx context.Context, token int64, filter, update any) (*mongo.UpdateResult, error) {
	if err := c.check(token, filter); err != nil {
		return nil, err
	}
	res, err := c.documents.UpdateOne(ctx, c.unseenBy(token, filter), update)
	if err != nil || res.MatchedCount > 0 {
		return res, err
	}
	return res, c.stale(ctx, token, filter)
}

// check returns the errors that can be found without the server.
func (c *Collection) check(token int64, filter any) error {
	switch {
	case isNil(filter):
		return errors.New("fence: the filter is nil; to match any document, pass bson.D{}")
	case token <= 0:
		return &StaleError{Collection: c.documents.Name(), Token: token}
	}
	return nil
}

// unseen returns two conditions. If the document has not seen a greater token, it meets one of them. An array must meet
// neither; otherwise the server would compare each element, and a single null or small number would be enough.
func (c *Collection) unseen(token int64) bson.A {
	noArray := e("$not", bson.D{e("$type", "array")})
	return bson.A{
		bson.D{e(c.field, bson.D{e("$eq", nil), noArray})}, // or missing
		bson.D{e(c.field, bson.D{e("$lte", token), noArray})},
	}
}

func (c *Collection) unseenBy(token int64, filter any) bson.D {
	return bson.D{e("$and", bson.A{inside(filter), bson.D{e("$or", c.unseen(token))}})}
}

// stale returns an error if a document that matches filter has seen a greater token, and nil if there is no such
// document.
func (c *Collection) stale(ctx context.Context, token int64, filter any) error {
	raw, err := c.documents.FindOne(ctx,
		bson.D{e("$and", bson.A{inside(filter), bson.D{e("$nor", c.unseen(token))}})},
		options.FindOne().SetProjection(bson.D{e(c.field, 1)}),
	).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return fmt.Errorf("fence: nothing was written; reading the document's token failed: %w", err)
	}
	seen, _ := raw.Lookup(c.field).AsInt64OK()
	return &StaleError{Collection: c.documents.Name(), Token: token, Seen: seen, ID: raw.Lookup("_id")}
}
