package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Members without ids returns all sessions that are alive, ordered by id. It reads up to 1,000 sessions with each
// command.
func TestMembersOfMoreThanAPage(t *testing.T) {
	for _, n := range []int{999, 1000, 1001, 2100} {
		inBubble(t, strconv.Itoa(n), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var want []string
			for i := range n {
				id := fmt.Sprintf("%05d", i*17%n)
				if _, err := store.Register(background, driver.Member{ID: id, TTL: time.Hour, Host: id}); err != nil {
					t.Fatal(err)
				}
				want = append(want, id)
			}
			slices.Sort(want)
			s := newSession(t, newFaulty(t, store, func(r dsynctest.Request) (f dsynctest.Fault) {
				if r.Method == dsynctest.MethodObservers {
					f.Delay = time.Second
				}
				return f
			}), nil)
			time.AfterFunc(time.Second/2, func() { store.Heartbeat(background, want[n-1], nil) }) // between reading one page and the next
			before := store.Counts()
			all, now, err := admin.New(s).Members(background)
			if err != nil || len(all) != n {
				t.Fatalf("Members: %d, %v; want %d", len(all), err, n)
			}
			for i, m := range all {
				if m.ID != want[i] || m.Host != want[i] || now.Before(m.LastHeartbeat) {
					t.Fatalf("number %d is %+v, read at %v; want %s", i, m, now, want[i])
				}
			}
			d := store.Counts().Since(before).Commands
			if sum := d[dsynctest.MethodMembers] + d[dsynctest.MethodObservers]; sum != n/1000+1 {
				t.Errorf("Members cost %v, want %d readings", d, n/1000+1)
			}
		})
	}
}

// Any session can find out which sessions observe a key and which claims are in the key's queue.
func TestObserversAndQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, &dsync.Options{Name: "a"}), newSession(t, store, nil)
		ctx, cancel := context.WithCancel(background)
		ended := make(chan struct{})
		engine.Of(a).Observe(ctx, "k", func(driver.State, error) {}, func() { close(ended) })
		mu := b.Mutex("k")
		lock(t, mu)
		for range 3 {
			other := newSession(t, store, nil).Mutex("k")
			go other.LockContext(ctx)
			time.Sleep(time.Second)
		}
		check := func(when string, observers, waiting int) {
			t.Helper()
			found, err := engine.Of(b).Observers(background, "k")
			line, err2 := engine.Of(b).Queue(background, "k")
			if err := errors.Join(err, err2); err != nil || len(found) != observers || len(line) != waiting {
				t.Errorf("%s: observers %+v, queue %+v, %v; want %d and %d", when, found, line, err, observers, waiting)
			}
			if len(found) > 0 && found[0].Name != "a" {
				t.Errorf("%s: observed by %+v, want the session named a", when, found)
			}
		}
		check("while one observes and three wait", 1, 3)
		cancel()
		<-ended
		time.Sleep(time.Second)
		check("later", 0, 0)

		for _, key := range []string{"", "a\x00b"} {
			_, err := engine.Of(b).Observers(background, key)
			_, err2 := engine.Of(b).Queue(background, key)
			wantErr(t, fmt.Sprintf("Observers of %q", key), err, dsync.ErrInvalidKey)
			wantErr(t, fmt.Sprintf("Queue of %q", key), err2, dsync.ErrInvalidKey)
		}
		b.Close(background)
		_, err := engine.Of(b).Observers(background, "k")
		wantErr(t, "Observers of a closed session", err, dsync.ErrClosed)
		_, err = engine.Of(b).Queue(background, "k")
		wantErr(t, "Queue of a closed session", err, dsync.ErrClosed)
	})
}
