package integration_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

func TestStore(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		dsynctest.TestStore(t, func(*testing.T) dsync.Store { return store })
	})
}
