package integration_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// If the collection is capped, every Open fails with an error that says what to do. Once the
// collection has been dropped, as the error says, a new session works.
func TestCappedCollection(t *testing.T) {
	lab.Each(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		db := r.Client(t).Database(r.DB)
		capped := options.CreateCollection().SetCapped(true).SetSizeInBytes(1 << 20)
		if err := db.CreateCollection(t.Context(), collection, capped); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := dsyncmongo.Open(t.Context(), db, nil)
			if !errors.Is(err, dsync.ErrRefused) || !strings.Contains(err.Error(), "capped") || !strings.Contains(err.Error(), "drop it") {
				t.Errorf("Open: %v, want ErrRefused, with the cause (capped) and what to do", err)
			}
		}
		if err := r.raw().Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := r.session(r.short(patient)).Mutex("key")
		release(t, lock(t, m))
	})
}
