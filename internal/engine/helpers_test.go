package engine_test

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/testkit"
)

// These are the timings of the sessions in these tests, unless a test sets its own.
const (
	ttl    = testkit.TTL
	margin = 500 * time.Millisecond
	grace  = time.Second
	lease  = ttl - ttl/1000 - margin - grace // from the send of a heartbeat to the deadline
)

var background = context.Background()

var (
	newSession = testkit.NewSession
	noErr      = testkit.NoErr
	inBubble   = testkit.InBubble
	newFaulty  = testkit.NewFaulty
	lock       = testkit.Lock
	turn       = testkit.Turn
	makeLinger = testkit.MakeLinger
	take       = testkit.Take
	units      = testkit.Units
	errOf      = testkit.ErrOf
	isClosed   = testkit.IsClosed
	holders    = testkit.Holders
	wantErr    = testkit.WantErr
	bubble     = synctest.Test
)
