package mongo

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

const defaultFenceField = "fence"

// A Fence guards the documents of a collection with fencing tokens: a write is
// applied only if its document has not seen a greater token, and leaves its own
// token there. Both happens in one atomic step of the server; a write that comes
// too late changes nothing, and its error is [ErrFenced].
//
//	orders := dsyncmongo.NewFence(db.Collection("orders"), nil)
//	…
//	mu := locks.Mutex("order 7")
//	mu.Lock()
//	defer mu.Unlock()
//	res, err := orders.UpdateOne(ctx, mu.Token(), bson.D{{"_id", 7}}, bson.D{{"$set", bson.D{{"paid", true}}}})
//
// # Why a lock alone is not enough
//
// A process holds the lock and is about to write. It is frozen: by the scheduler of
// a virtual machine, a debugger, a disk that hangs. It sends no heartbeats, its
// lease runs out, and another process takes the lock, with a greater token, reads
// the document, and writes. Then the first one goes on, with the next instruction,
// which sends its write. No lock can stop it: it looked at the lock a moment, that
// is a minute, ago. So the last word is the document's. The second process left
// its token there, the first one's is smaller, and its write is refused.
//
// It takes every writer of these documents to go through a Fence, with tokens of
// one key per document. A write with the token that the document has seen last is
// applied: it is the same holder again.
//
// The second process is safe from the first as soon as its token is in the document:
// from its first write on. One that reads the document, and decides by it what to
// write, should [Fence.Raise] first: else a late write may come between the two.
//
// # What it does to documents and writes
//
// The token is kept in a field of the document, an int64. One that has none, or
// null, has seen no token. If there is anything but a number in it, an array of numbers
// included, every write is refused with [ErrFenced], whose Seen is 0. The field is the fence's: an update that names it is
// refused, that of a replacement is replaced.
//
// Writes are acknowledged by a majority, whatever the collection's own write concern,
// since a fail-over could undo others, and the token with them. In a transaction
// that ctx carries they are part of it, and its write concern, which should be
// majority, is theirs.
//
// A write that was refused is followed by a read that tells whether there was no
// such document, which is no error, as with the driver's methods, or a fenced one.
// If many documents match a filter, any one of them that is not fenced is written.
//
// A Fence has no state but what it was made of, and its methods may be called
// concurrently.
type Fence struct {
	documents *mongo.Collection
	field     string
}

// FenceOptions are the settings of a [Fence]. The zero value of each field is its
// default; a nil *FenceOptions is all defaults.
type FenceOptions struct {
	// Field is the name of the field that the token is kept in, at the top level of
	// the documents. Default "fence".
	Field string
}

// NewFence returns a fence for the documents of a collection. It panics if the
// collection is nil or the field's name is one that no field of the fence's own can
// have: "_id", or one that contains '.' or NUL, or begins with '$'.
func NewFence(documents *mongo.Collection, opt *FenceOptions) *Fence {
	field := defaultFenceField
	if opt != nil && opt.Field != "" {
		field = opt.Field
	}
	switch {
	case documents == nil:
		panic("mongo: NewFence: the collection is nil; pass one, as db.Collection(\"orders\")")
	case field == "_id", strings.HasPrefix(field, "$"), strings.ContainsAny(field, ".\x00"):
		panic(fmt.Sprintf("mongo: NewFence: the field can't be %q; it must not be _id, contain '.' or NUL, or begin with '$'", field))
	}
	return &Fence{
		documents: documents.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()).
			// A read must see at least what the refused write saw, on the node that
			// refused it, committed or not.
			SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Local())),
		field: field,
	}
}

// ErrFenced: the document has seen a greater token, or the token is none, which is
// what Token returns once the hold is lost. Nothing was written. The error is a
// [*FencedError].
var ErrFenced = errors.New("mongo: fenced: the token is too old")

// A FencedError says why a write was refused. It is [ErrFenced].
type FencedError struct {
	Collection string
	Token      int64         // the write's
	Seen       int64         // the document's, 0 if it holds something else, or was not looked at
	ID         bson.RawValue // the document's _id, of type 0 if it was not looked at
}

func (e *FencedError) Error() string {
	switch {
	case e.Token <= 0:
		return fmt.Sprintf("mongo: a write to %s is fenced: without a token; is the lock lost?", e.Collection)
	case e.Seen <= 0:
		return fmt.Sprintf("mongo: a write to %s is fenced: the field for the token of %v holds no number", e.Collection, e.ID)
	}
	return fmt.Sprintf("mongo: a write to %s is fenced: %v has seen token %d, which is greater than %d",
		e.Collection, e.ID, e.Seen, e.Token)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// UpdateOne applies an update, with operators or a pipeline, to one document that
// matches the filter and has not seen a greater token. A MatchedCount of 0 without
// an error says that no document matches. The update is a [bson.D], a [bson.Raw], a
// map, or a slice of stages, such as mongo.Pipeline.
func (f *Fence) UpdateOne(ctx context.Context, token int64, filter, update any) (*mongo.UpdateResult, error) {
	stamped, err := f.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	return f.update(ctx, token, filter, stamped)
}

// ReplaceOne replaces all of one document that matches the filter and has not seen
// a greater token, but its _id and the token. A MatchedCount of 0 without an error
// says that no document matches.
func (f *Fence) ReplaceOne(ctx context.Context, token int64, filter, replacement any) (*mongo.UpdateResult, error) {
	if err := checkReplacement(replacement); err != nil {
		return nil, err
	}
	// As a pipeline, since then it is the driver that encodes the replacement, with
	// the client's registry, as it would have in its ReplaceOne.
	return f.update(ctx, token, filter, mongo.Pipeline{
		{e("$replaceWith", literal(inside(replacement)))},
		f.stamp(token),
	})
}

// Raise leaves the token in one document that matches the filter and has not seen a
// greater one, and nothing else: from then on no older write is applied. It is for
// holders that read a document and then write what depends on it. A MatchedCount of
// 0 without an error says that no document matches.
func (f *Fence) Raise(ctx context.Context, token int64, filter any) (*mongo.UpdateResult, error) {
	return f.update(ctx, token, filter, bson.D{e("$max", bson.D{e(f.field, token)})})
}

// DeleteOne deletes one document that matches the filter and has not seen a greater
// token. With the document goes the token it has seen: a late [Fence.Upsert] or
// [Fence.InsertOne] of an older holder makes it anew. Where that matters mark the
// document as deleted by an update, and delete it once no holder can be that late.
// A DeletedCount of 0 without an error says that no document matches.
func (f *Fence) DeleteOne(ctx context.Context, token int64, filter any) (*mongo.DeleteResult, error) {
	if err := f.check(token, filter); err != nil {
		return nil, err
	}
	res, err := f.documents.DeleteOne(ctx, f.guarded(token, filter))
	if err != nil || res.DeletedCount > 0 {
		return res, err
	}
	return res, f.fenced(ctx, token, filter)
}

// InsertOne inserts a document with the token in it. No token can refuse that: if a
// document with the _id is there already the error is the driver's, a duplicate key;
// and what was deleted has forgotten its token. The document is a [bson.D], a
// [bson.Raw] or a map; for other types see [bson.Marshal].
func (f *Fence) InsertOne(ctx context.Context, token int64, document any) (*mongo.InsertOneResult, error) {
	stamped, err := f.stampDocument(document, token)
	if err != nil {
		return nil, err
	}
	if token <= 0 {
		return nil, &FencedError{Collection: f.documents.Name(), Token: token}
	}
	return f.documents.InsertOne(ctx, stamped)
}

// upsertTries is how often an Upsert is sent that finds no document and then can't
// insert one.
const upsertTries = 3

// Upsert is [Fence.UpdateOne] of the document with the _id, which is made if there is
// none. A duplicate key in another index than that of _id is the driver's error.
func (f *Fence) Upsert(ctx context.Context, token int64, id, update any) (*mongo.UpdateResult, error) {
	stamped, err := f.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	filter := bson.D{e("_id", id)}
	if err := f.check(token, filter); err != nil {
		return nil, err
	}
	// A fenced document does not match, and then its _id is in the way. So is that of
	// a document that somebody else has just made: that one matches the next time.
	for try := 1; ; try++ {
		res, err := f.documents.UpdateOne(ctx, f.guarded(token, filter), stamped, options.UpdateOne().SetUpsert(true))
		if err == nil || !mongo.IsDuplicateKeyError(err) {
			return res, err
		}
		var fenced *FencedError
		if why := f.fenced(ctx, token, filter); errors.As(why, &fenced) {
			return nil, fenced
		} else if why != nil || try == upsertTries {
			return nil, err
		}
	}
}

func (f *Fence) update(ctx context.Context, token int64, filter, update any) (*mongo.UpdateResult, error) {
	if err := f.check(token, filter); err != nil {
		return nil, err
	}
	res, err := f.documents.UpdateOne(ctx, f.guarded(token, filter), update)
	if err != nil || res.MatchedCount > 0 {
		return res, err
	}
	return res, f.fenced(ctx, token, filter)
}

// check refuses what needs no server to be refused.
func (f *Fence) check(token int64, filter any) error {
	switch {
	case isNil(filter):
		return errors.New("mongo: the filter is nil; for any document pass bson.D{}")
	case token <= 0:
		return &FencedError{Collection: f.documents.Name(), Token: token}
	}
	return nil
}

// unseen is the condition that a document has not seen a greater token. Of an array the
// server looks at each element, and one that is null or small would do.
func (f *Fence) unseen(token int64) bson.A {
	noArray := e("$not", bson.D{e("$type", "array")})
	return bson.A{
		bson.D{e(f.field, bson.D{e("$eq", nil), noArray})}, // or missing
		bson.D{e(f.field, bson.D{e("$lte", token), noArray})},
	}
}

func (f *Fence) guarded(token int64, filter any) bson.D {
	return bson.D{e("$and", bson.A{inside(filter), bson.D{e("$or", f.unseen(token))}})}
}

// fenced returns why nothing matched: an error if a document is fenced, nil if
// there is none.
func (f *Fence) fenced(ctx context.Context, token int64, filter any) error {
	raw, err := f.documents.FindOne(ctx,
		bson.D{e("$and", bson.A{inside(filter), bson.D{e("$nor", f.unseen(token))}})},
		options.FindOne().SetProjection(bson.D{e(f.field, 1)}),
	).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return fmt.Errorf("mongo: nothing was written; whether a token or the filter is why: %w", err)
	}
	seen, _ := raw.Lookup(f.field).AsInt64OK()
	return &FencedError{Collection: f.documents.Name(), Token: token, Seen: seen, ID: raw.Lookup("_id")}
}
