package mongo_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A read-only store reads as usual. Methods that would write return an error and send nothing.
func TestReadOnly(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				s := f.store(&dsyncmongo.Options{ReadOnly: true}, null)
				err := m.call(t.Context(), s)
				if got := len(f.took()); m.writes != (got == 0) {
					t.Errorf("%d commands were sent, want none if the method writes (%v), otherwise some", got, m.writes)
				}
				if m.writes && !errors.Is(err, driver.ErrRefused) {
					t.Errorf("got %v, want ErrRefused", err)
				}
				for _, c := range f.took() {
					if c.name != "aggregate" {
						t.Errorf("%s was sent, want only aggregate", c.name)
					}
				}
			})
		})
	}
}

// A read-only store sends no short commands either.
func TestReadOnlySendsNoShortCommand(t *testing.T) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindElection} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			s := f.store(&dsyncmongo.Options{ReadOnly: true}, func(call) bson.D { return ok(e("n", 1), e("nModified", 1)) })
			c := mutexClaim(1)
			c.Kind = kind
			if found, _, err := storecmd.Release(t.Context(), s, c, driver.Release{}); found || !errors.Is(err, driver.ErrRefused) {
				t.Errorf("%s: Release: found %t, %v, want ErrRefused", kind, found, err)
			}
			if got := f.took(); len(got) != 0 {
				t.Errorf("%s: sent %v, want nothing", kind, got)
			}
		})
	}
}

// Opening a read-only session and trying a lock with it send no command but hello.
func TestReadOnlySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(null)
		s, err := dsyncmongo.Open(t.Context(), client.Database("app"), &dsyncmongo.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Mutex("k").TryHold(t.Context()); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("TryHold: %v, want ErrRefused", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i, c := range f.took() {
			if i > 0 || c.name != "hello" {
				t.Errorf("command %d is %s, want none but hello", i, c.name)
			}
		}
	})
}
