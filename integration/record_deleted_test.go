package integration_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B38: an operator deletes the record of a held key. The holder is notified at its next heartbeat,
// and the cause names the deletion. A process that has acquired the key by then keeps it. A hold
// of another key is not lost.
func TestRecordDeleted(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		a, b := r.session(r.short(10*time.Second)), r.session(r.short(10*time.Second))
		key, other := lock(t, a.Mutex("k")), lock(t, a.Mutex("other"))
		sem, err := a.Semaphore("s", 2).Hold(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"k", "s"} {
			if d, err := r.raw().DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}); err != nil || d.DeletedCount != 1 {
				t.Fatalf("deleting the record of %q: %v, %v", key, d, err)
			}
		}
		deleted := time.Now()
		next := lock(t, b.Mutex("k"))
		for _, h := range []*dsync.Hold{key, sem} {
			select {
			case <-h.Lost():
			case <-time.After(time.Minute):
				t.Fatal("the holder was not notified within a minute")
			}
		}
		lab.Note(t, "notified after %v", time.Since(deleted).Round(time.Millisecond))
		for _, h := range []*dsync.Hold{key, sem} {
			if err := h.Release(t.Context()); !errors.Is(err, dsync.ErrLost) || !errors.Is(err, dsync.ErrRecordDeleted) {
				t.Errorf("Release: %v, want ErrLost because of ErrRecordDeleted", err)
			}
		}
		release(t, next)
		release(t, other)
	})
}
