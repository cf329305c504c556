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

// A Fence guards the documents of a collection with fencing tokens. A write is applied only if
// its document has not seen a greater token, and leaves its own token in the document, both in
// one atomic step of the server. A write that comes too late changes nothing and returns
// [ErrFenced].
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
// A process holds the lock and is about to write. It is frozen, by the scheduler of a virtual
// machine, a debugger, or a disk that hangs. It sends no heartbeats, its lease runs out, and
// another process takes the lock, with a greater token, reads the document, and writes. Then
// the first process resumes with its next instruction, which sends its write. No lock can stop
// it: it checked the lock just before that, which is now a minute ago. So the document must
// decide. It has the token of the second process; that of the first is smaller, and its write
// is refused.
//
// All writers of these documents must use a Fence, with the tokens of one key per document. A
// write with the last token that the document has seen is applied: it comes from the same
// holder.
//
// The second process is safe from the first as soon as its token is in the document, that is,
// from its first write on. A holder that reads a document and then decides what to write should
// call [Fence.RaiseToken] first; otherwise a late write may come between its read and its write.
//
// # What it does to documents and writes
//
// The token is kept in a field of the document, as an int64. A document without the field, or
// with null in it, has seen no token. If the field has anything else but a number, even an
// array of numbers, every write is refused with [ErrFenced], whose Seen is 0. The field belongs
// to the fence: an update that names it is an error, and a replacement's value for it is
// overwritten.
//
// Writes are acknowledged by a majority, whatever the collection's own write concern, since a
// fail-over could undo others together with the token. A standalone that is killed can still lose
// what it acknowledged in the last tenth of a second; a replica set of one member loses nothing. If
// ctx carries a transaction, writes are part of it, and the transaction's write concern applies,
// which should be majority.
//
// If nothing matches a write, a read follows, to tell a fenced document, which is an error,
// from no document, which is not an error, as with the driver's methods. If several documents
// match a filter, any one of them that is not fenced is written.
//
// A Fence has no mutable state. Its methods may be called concurrently.
type Fence struct {
	documents *mongo.Collection
	field     string
}

// FenceOptions are the settings of a [Fence]. The zero value of each field is its
// default; a nil *FenceOptions is all defaults.
type FenceOptions struct {
	// Field is the name of the field that keeps the token, at the top level of the documents.
	// Default "fence".
	Field string
}

// NewFence returns a fence for the documents of a collection. It panics if the collection is
// nil, or if opt.Field is "_id", contains '.' or NUL, or begins with '$'.
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
			// The read must see at least what the refused write saw, on the node that
			// refused it, whether or not it is committed.
			SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Local())),
		field: field,
	}
}

// ErrFenced means that the document has seen a greater token, or that the token is 0, which is
// what Token returns once a hold is lost. Nothing was written. The error is a [*FencedError].
var ErrFenced = errors.New("mongo: fenced: the token is too old")

// A FencedError says why a write was refused. It matches [ErrFenced].
type FencedError struct {
	Collection string
	Token      int64         // the token of the write
	Seen       int64         // the token in the document; 0 if it has something else, or was not read
	ID         bson.RawValue // the document's _id; of type 0 if it was not read
}

func (e *FencedError) Error() string {
	switch {
	case e.Token <= 0:
		return fmt.Sprintf("mongo: a write to %s is fenced: it has no token; is the lock lost?", e.Collection)
	case e.Seen <= 0:
		return fmt.Sprintf("mongo: a write to %s is fenced: the token's field in %v is not a number", e.Collection, e.ID)
	}
	return fmt.Sprintf("mongo: a write to %s is fenced: %v has seen token %d, which is greater than %d",
		e.Collection, e.ID, e.Seen, e.Token)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// UpdateOne applies an update, of operators or a pipeline, to one document that matches the
// filter and has not seen a greater token. The update is a [bson.D], a [bson.Raw], a map, or a
// slice of stages, such as mongo.Pipeline. A MatchedCount of 0 without an error means that no
// document matches the filter.
func (f *Fence) UpdateOne(ctx context.Context, token int64, filter, update any) (*mongo.UpdateResult, error) {
	stamped, err := f.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	return f.update(ctx, token, filter, stamped)
}

// ReplaceOne replaces one document that matches the filter and has not seen a greater token,
// except for its _id and the token. A MatchedCount of 0 without an error means that no document
// matches the filter.
func (f *Fence) ReplaceOne(ctx context.Context, token int64, filter, replacement any) (*mongo.UpdateResult, error) {
	if err := checkReplacement(replacement); err != nil {
		return nil, err
	}
	// With a pipeline, the driver encodes the replacement with the client's registry, as its
	// own ReplaceOne would.
	return f.update(ctx, token, filter, mongo.Pipeline{
		{e("$replaceWith", literal(inside(replacement)))},
		f.stamp(token),
	})
}

// RaiseToken stores the token in one document that matches the filter and has not seen a greater
// token, and changes nothing else. From then on no older write is applied. It is for holders
// that read a document and then write what depends on it. A MatchedCount of 0 without an error
// means that no document matches the filter.
func (f *Fence) RaiseToken(ctx context.Context, token int64, filter any) (*mongo.UpdateResult, error) {
	return f.update(ctx, token, filter, bson.D{e("$max", bson.D{e(f.field, token)})})
}

// DeleteOne deletes one document that matches the filter and has not seen a greater token. The
// token is deleted with the document, so a late [Fence.Upsert] or [Fence.InsertOne] of an older
// holder can create the document again. If that matters, mark the document as deleted by an
// update, and delete it when no holder can be that late. A DeletedCount of 0 without an error
// means that no document matches the filter.
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

// InsertOne inserts a document with the token in it. A token greater than 0 cannot be too old
// for that: a deleted document's token is forgotten. If a document with the same _id exists,
// the error is the driver's, a duplicate key. The document is a [bson.D], a [bson.Raw] or a
// map; for other types see [bson.Marshal].
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

// upsertTries is how often Upsert tries again when it finds no document and cannot insert one
// either.
const upsertTries = 3

// Upsert is [Fence.UpdateOne] for the document with the given _id, which is inserted if there
// is none. A duplicate key in an index other than that of _id is returned as the driver's
// error.
func (f *Fence) Upsert(ctx context.Context, token int64, id, update any) (*mongo.UpdateResult, error) {
	stamped, err := f.stampUpdate(update, token)
	if err != nil {
		return nil, err
	}
	filter := bson.D{e("_id", id)}
	if err := f.check(token, filter); err != nil {
		return nil, err
	}
	// A fenced document does not match, and its _id makes the insert fail. So does a document
	// that somebody else has just inserted, but that one matches the next time.
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

// check returns the errors that need no server.
func (f *Fence) check(token int64, filter any) error {
	switch {
	case isNil(filter):
		return errors.New("mongo: the filter is nil; for any document pass bson.D{}")
	case token <= 0:
		return &FencedError{Collection: f.documents.Name(), Token: token}
	}
	return nil
}

// unseen returns the conditions under which a document has not seen a greater token: either is
// enough. Arrays are excluded, because the server compares each of their elements, and one that
// is null or small would be enough.
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

// fenced returns an error if a document matches filter but is fenced, or nil if none does.
func (f *Fence) fenced(ctx context.Context, token int64, filter any) error {
	raw, err := f.documents.FindOne(ctx,
		bson.D{e("$and", bson.A{inside(filter), bson.D{e("$nor", f.unseen(token))}})},
		options.FindOne().SetProjection(bson.D{e(f.field, 1)}),
	).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return fmt.Errorf("mongo: nothing was written; reading whether the document is fenced failed: %w", err)
	}
	seen, _ := raw.Lookup(f.field).AsInt64OK()
	return &FencedError{Collection: f.documents.Name(), Token: token, Seen: seen, ID: raw.Lookup("_id")}
}
