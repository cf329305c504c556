package dsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Timing of the sessions in these tests, but where a test says otherwise.
const (
	ttl    = 10 * time.Second
	margin = 500 * time.Millisecond
	grace  = time.Second
	lease  = ttl - ttl/1000 - margin - grace // from the send of a heartbeat to the deadline
)

var background = context.Background()

// newSession returns a session that is closed at the end of the test.
func newSession(t testing.TB, store dsync.Store, opt *dsync.Options) *dsync.Session {
	t.Helper()
	if opt == nil {
		opt = &dsync.Options{}
	}
	if opt.TTL == 0 {
		opt.TTL = ttl
	}
	s, err := dsync.New(store, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(background) })
	return s
}

// newFaulty returns a Faulty that is closed at the end of the test, before the
// sessions that were made with it.
func newFaulty(t testing.TB, store dsync.Store, decide func(dsynctest.Request) dsynctest.Fault) *dsynctest.Faulty {
	f := dsynctest.NewFaulty(store, decide)
	t.Cleanup(f.Close)
	return f
}

// bubble runs f in a bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lock locks m within five minutes.
func lock(t testing.TB, m *dsync.Mutex) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	defer cancel()
	if err := m.LockContext(ctx); err != nil {
		t.Fatalf("LockContext: %v", err)
	}
}

// turn locks and unlocks m.
func turn(m *dsync.Mutex) {
	m.Lock()
	defer m.Unlock()
}

func wantErr(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: error is %v, want one that is %v", what, err, w)
		}
	}
}

// holders returns who holds key in the store.
func holders(t testing.TB, store dsync.Store, key string) []dsync.Holder {
	t.Helper()
	st, err := store.Load(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Holders
}

// line returns how many wait for key in the store.
func line(t testing.TB, store dsync.Store, key string) int {
	t.Helper()
	st, err := store.Load(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Waiting
}
