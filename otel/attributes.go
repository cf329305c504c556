package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const (
	keyAttr       = attribute.Key("leasehold.key")
	kindAttr      = attribute.Key("leasehold.kind")
	sourceAttr    = attribute.Key("leasehold.grant.source")
	tokenAttr     = attribute.Key("leasehold.fencing_token")
	termAttr      = attribute.Key("leasehold.leader.term.number")
	operationAttr = attribute.Key("leasehold.store.operation")
	directionAttr = attribute.Key("leasehold.clock.direction")
	errorAttr     = attribute.Key("error.type")
)

// ended returns the error.type of what ended a hold, a session or a term that its
// holder has not ended.
func ended(cause error) attribute.KeyValue {
	switch {
	case errors.Is(cause, dsync.ErrRevoked):
		return errorAttr.String("revoked")
	case errors.Is(cause, dsync.ErrClosed):
		return errorAttr.String("closed")
	case errors.Is(cause, driver.ErrSessionExpired):
		return errorAttr.String("session_expired")
	}
	return errorAttr.String("expired")
}

// failed returns the error.type of a command that failed, nothing if it did not: the
// type of the innermost error, since what it is wrapped in says nothing.
func failed(err error) []attribute.KeyValue {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return []attribute.KeyValue{errorAttr.String("timeout")}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return []attribute.KeyValue{errorAttr.String(fmt.Sprintf("%T", err))}
}
