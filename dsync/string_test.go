package dsync_test

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestString(t *testing.T) {
	s, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
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
