package dsync_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

func TestString(t *testing.T) {
	s, err := dsync.New(dsynctest.NewMemory(), nil)
	noErr(t, err)
	defer s.Close(t.Context())
	for _, tc := range []struct {
		lock fmt.Stringer
		want string
	}{
		{s.Mutex("a b"), `mutex "a b"`},
		{s.RWMutex("a\nb"), `rwmutex "a\nb"`},
		{s.Semaphore("k", 3), `semaphore "k"`},
		{s.Once("k"), `once "k"`},
	} {
		if got := fmt.Sprint(tc.lock); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// A hold's String method shows its state, and sends no command.
func TestStringOfHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, err := dsync.New(store, nil)
		noErr(t, err)
		defer s.Close(t.Context())
		want := func(value fmt.Stringer, want string) {
			t.Helper()
			testkit.WantString(t, store, value, want)
		}
		l, err := s.Mutex("a b").Lease(t.Context(), time.Minute)
		noErr(t, err)
		want(l, fmt.Sprintf(`mutex "a b": held until 2000-01-01T00:01:00.000Z, token %d`, l.Token()))
		time.Sleep(time.Minute)
		want(l, `mutex "a b": over`)
	})
}
