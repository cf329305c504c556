package integration_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B38: an operator deletes the record of a key that is held. The holder is told with its next heartbeat, with a cause
// that says so, and whoever has the key by then keeps it. A key that nobody has touched is not lost.
func TestRecordDeleted(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		a, b := r.session(r.short(10*time.Second)), r.session(r.short(10*time.Second))
		ma, mb, other := a.Mutex("k"), b.Mutex("k"), a.Mutex("other")
		lock(t, ma)
		lock(t, other)
		sem := a.Semaphore("s", 2)
		if err := sem.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"k", "s"} {
			if d, err := r.raw().DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "k/" + key}}); err != nil || d.DeletedCount != 1 {
				t.Fatalf("deleting the record of %q: %v, %v", key, d, err)
			}
		}
		deleted := time.Now()
		lock(t, mb)
		for _, lost := range []<-chan struct{}{ma.Lost(), sem.Lost()} {
			select {
			case <-lost:
			case <-time.After(time.Minute):
				t.Fatal("the holder is not told")
			}
		}
		lab.Note(t, "told after %v", time.Since(deleted).Round(time.Millisecond))
		for _, err := range []error{ma.UnlockContext(t.Context()), sem.ReleaseContext(t.Context(), 1)} {
			if !errors.Is(err, dsync.ErrLost) || !errors.Is(err, dsync.ErrRecordDeleted) {
				t.Errorf("released: %v, want that the record was deleted", err)
			}
		}
		if !mb.Held() || !other.Held() {
			t.Errorf("the next holder has the key: %t; the other key is held: %t", mb.Held(), other.Held())
		}
		unlock(t, mb)
		unlock(t, other)
	})
}
