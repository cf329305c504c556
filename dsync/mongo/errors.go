package mongo

import (
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The server's error codes that matter here (src/mongo/base/error_codes.yml).
const (
	codeUnauthorized     = 13
	codeConversion       = 241 // raised by our own pipelines, see guard
	codeDuplicateKey     = 11000
	codeNotAReplicaSet   = 40573 // "$changeStream stage is only supported on replica sets"
	codeUnknownStage     = 40324
	codeDocumentDBNoFeed = 136 // Amazon DocumentDB: change streams are not enabled for the collection
)

// refusals are the codes of commands that repeating can't mend and that changed
// nothing.
var refusals = []int{
	codeUnauthorized,
	18,   // AuthenticationFailed
	9,    // FailedToParse
	59,   // CommandNotFound
	72,   // InvalidOptions
	73,   // InvalidNamespace
	115,  // CommandNotSupported
	121,  // DocumentValidationFailure
	166,  // CommandNotSupportedOnView
	224,  // QueryFeatureNotAllowed
	238,  // NotImplemented
	322,  // APIVersionError
	323,  // APIStrictError
	8000, // Atlas: no such right
	codeConversion,
}

// unwatchable are the codes with which a change stream is refused where there is
// none, beside those that refuse any command.
var unwatchable = []int{
	codeNotAReplicaSet, codeUnknownStage, codeDocumentDBNoFeed,
	20,  // IllegalOperation
	304, // InternalErrorNotSupported, of DocumentDB
}

// failure turns an error of the driver into the store's: of type ErrRefused if
// the server refused the command for good, else one that says that the outcome is
// unknown by being no answer at all.
func failure(op string, err error) error {
	switch {
	case hasCode(err, codeConversion):
		return fmt.Errorf("mongo: %s: %w: the key's record has a format that this version does not know; use the newer version of this library that wrote it: %w",
			op, dsync.ErrRefused, err)
	case hasCode(err, refusals...):
		return fmt.Errorf("mongo: %s: %w: %w", op, dsync.ErrRefused, err)
	}
	return fmt.Errorf("mongo: %s: %w", op, err)
}

// hasCode reports whether the server refused a command or a write with one of the
// codes. The code of a writeConcernError is none of them: that write was applied,
// and whether it stays is unknown.
func hasCode(err error, codes ...int) bool {
	var w mongo.WriteException
	if errors.As(err, &w) {
		for _, we := range w.WriteErrors {
			for _, c := range codes {
				if we.Code == c {
					return w.WriteConcernError == nil
				}
			}
		}
		return false
	}
	var ce mongo.CommandError
	if errors.As(err, &ce) {
		for _, c := range codes {
			if int(ce.Code) == c {
				return true
			}
		}
	}
	return false
}
