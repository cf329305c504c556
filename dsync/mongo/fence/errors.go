package fence

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// ErrStale means that the data has seen a greater token, that its field for the token has no number, or that the token
// of the write is 0. Token returns 0 once a hold is lost. Nothing was written. The error is a [*StaleError].
var ErrStale = errors.New("fence: the token is stale")

// A StaleError tells why a write or a transaction was refused. It matches [ErrStale].
type StaleError struct {
	Collection string        // the name of the collection
	Token      int64         // the token of the write
	Seen       int64         // the token in the document; 0 if the document has no number there, or was not read
	ID         bson.RawValue // the document's _id, or a Guard's key; its Type is 0 if it was not read
}

func (e *StaleError) Error() string {
	switch {
	case e.Token <= 0:
		return fmt.Sprintf("fence: a write to %s is refused: it has no token; is the lock lost?", e.Collection)
	case e.Seen <= 0:
		return fmt.Sprintf("fence: a write to %s is refused: the token's field in %v is not a number", e.Collection, e.ID)
	}
	return fmt.Sprintf("fence: a write to %s is refused: %v has seen token %d, which is greater than %d",
		e.Collection, e.ID, e.Seen, e.Token)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// hasCode reports whether err is an error of the server with one of the codes.
func hasCode(err error, codes ...int) bool {
	var answer mongo.ServerError
	if !errors.As(err, &answer) {
		return false
	}
	for _, code := range codes {
		if answer.HasErrorCode(code) {
			return true
		}
	}
	return false
}
