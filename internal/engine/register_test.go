package engine_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/rs/xid"
)

// Two sessions whose xids are equal, as those of two containers with process 1 and
// the same machine id can be, don't share an id: at least 64 random bits follow.
func TestSessionsWithOneXIDHaveTheirOwnIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sessions = 300
		store := dsynctest.NewMemory()
		seen := make(map[string]bool)
		var at []map[rune]bool // which characters were seen at each place behind the xid
		for range sessions {
			s := newSession(t, store, nil)
			mu := s.Mutex("k")
			lock(t, mu)
			id := s.ID()
			mu.Unlock()
			if _, err := xid.FromString(id[:20]); err != nil {
				t.Fatalf("id %q does not begin with an xid: %v", id, err)
			}
			if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
				t.Errorf("id %q has other characters than letters, digits, '-' and '_'", id)
			}
			if rest := id[20:]; seen[rest] {
				t.Fatalf("two sessions have %q behind the xid", rest)
			} else {
				seen[rest] = true
			}
			for i, c := range id[20:] {
				if i == len(at) {
					at = append(at, make(map[rune]bool))
				}
				at[i][c] = true
			}
		}
		bits := 0.0
		for _, chars := range at {
			bits += math.Log2(float64(len(chars)))
		}
		if bits < 64 {
			t.Errorf("what is behind the xid of %d sessions has %.0f bits, want 64 at least", sessions, bits)
		}
	})
}

// A takenStore has a session of somebody else's under each of the first ids that are
// registered.
type takenStore struct {
	*dsynctest.Memory
	ids   []string // that were asked for
	taken int
}

func (s *takenStore) Register(ctx context.Context, m dsync.Member) (time.Time, error) {
	s.ids = append(s.ids, m.ID)
	if len(s.ids) <= s.taken {
		if _, err := s.Memory.Register(ctx, dsync.Member{ID: m.ID, TTL: time.Hour, Name: "another"}); err != nil {
			return time.Time{}, err
		}
	}
	return s.Memory.Register(ctx, m)
}

// An id that somebody has is not taken over: the next attempt takes another, and who
// waits goes on.
func TestSessionTakesAnotherIDWhereItsIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takenStore{Memory: dsynctest.NewMemory(), taken: 2}
		var failed []error
		s := newSession(t, store, &dsync.Options{Hooks: &dsync.Hooks{StoreError: func(op string, err error) { failed = append(failed, err) }}})
		mu := s.Mutex("k")
		wantErr(t, "TryLockContext", mu.TryLockContext(background), driver.ErrSessionExists)
		lock(t, mu)
		if len(store.ids) != 3 || s.ID() != store.ids[2] || store.ids[0] == store.ids[1] || store.ids[1] == store.ids[2] {
			t.Errorf("registered as %q, asked for %q; want the third, and all different", s.ID(), store.ids)
		}
		members, _, err := store.Members(background, store.ids[:2]...)
		if err != nil || len(members) != 2 || members[0].Name != "another" || members[1].Name != "another" {
			t.Errorf("the others' records are %+v, %v; want them as they were", members, err)
		}
		mu.Unlock()
		if err := s.Close(background); err != nil {
			t.Error(err)
		}
		synctest.Wait() // for the hooks
		if len(failed) != 2 || !errors.Is(errors.Join(failed...), driver.ErrSessionExists) {
			t.Errorf("StoreError told of %v, want the two that were refused", failed)
		}
	})
}
