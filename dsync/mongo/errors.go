package mongo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The server's error codes that this package handles (src/mongo/base/error_codes.yml).
const (
	codeUnauthorized    = 13
	codeAtlas           = 8000 // see notAllowed
	codeAPIStrict       = 323
	codeFailedToParse   = 9
	codeConversion      = 241 // raised by this package's pipelines, see guard and unmet
	codeDuplicateKey    = 11000
	codeNamespaceExists = 48
	codeMaxTimeExpired  = 50
	codeBadValue        = 2 // "tailable cursor requested on non capped collection", or j: true without a journal
	codeCommandNotFound = 59
	codeNotImplemented  = 238

	// Errors of a cursor on notices: newer notices have overwritten its position, its collection was dropped, or
	// the server has closed it.
	codeCappedPositionLost = 136
	codeQueryPlanKilled    = 175
	codeCursorNotFound     = 43
)

// refusals are the error codes with which the server refuses a command for good.
var refusals = []int{
	codeUnauthorized,
	18, // AuthenticationFailed
	codeFailedToParse,
	codeCommandNotFound,
	72,  // InvalidOptions
	73,  // InvalidNamespace
	115, // CommandNotSupported
	121, // DocumentValidationFailure
	166, // CommandNotSupportedOnView
	224, // QueryFeatureNotAllowed
	codeNotImplemented,
	322, // APIVersionError
	codeAPIStrict,
	codeConversion,
}

// refused reports whether the server refused a command for good: the command changed nothing, and repeating it
// cannot help.
func refused(err error) bool { return hasCode(err, refusals...) || notAllowed(err) }

// notAllowed reports whether the user lacks a privilege or, on Atlas, cannot log in. Atlas's proxy uses one code, 8000,
// for everything that it refuses: a wrong password, a command that the user may not send, and also a write while the
// cluster is over its space quota. The refusal of such a write is temporary, and only the text of the error identifies
// it.
func notAllowed(err error) bool {
	return hasCode(err, codeUnauthorized) || hasCode(err, codeAtlas) && !strings.Contains(err.Error(), "space quota")
}

// failure adds the operation to an error. The result matches every error that err matches, and also ErrRefused if the
// server refused the command for good. If it matches no error of package driver, the command may have been applied.
func failure(op string, err error) error {
	switch {
	case hasCode(err, codeConversion):
		return fmt.Errorf("mongo: %s: %w: the key's record has a format that this version does not know; upgrade this library to the version that wrote it: %w",
			op, driver.ErrRefused, err)
	case refused(err):
		return fmt.Errorf("mongo: %s: %w: %w", op, driver.ErrRefused, err)
	case mongo.IsNetworkError(err) && mongo.IsTimeout(err), hasCode(err, codeMaxTimeExpired):
		return fmt.Errorf("mongo: %s: the server has not answered in time: it is out of reach, overloaded, or locked for a backup (fsyncLock): %w", op, err)
	}
	return fmt.Errorf("mongo: %s: %w", op, err)
}

// hasCode reports whether the server refused a command or a write with one of the codes. It returns false if there is a
// writeConcernError, because then a write was applied, although a fail-over may undo it.
func hasCode(err error, codes ...int) bool {
	if err == nil {
		return false
	}
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
