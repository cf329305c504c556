package fleet

import (
	"log/slog"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Process is one of a [Fleet].
type Process struct {
	Name  string
	Index int // from 0, among those that are played in this one
	Locks *dsync.Session
	Log   *slog.Logger
}
