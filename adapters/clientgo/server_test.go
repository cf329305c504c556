package clientgo_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold/adapters/clientgo"
)

// These tests run on the server that MONGODB_URI names. integration.TestClientGo runs them on each
// of its servers.

// A place is a database for a single test.
type place struct {
	uri, db string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{os.Getenv("MONGODB_URI"), "leasehold_clientgo_" + bson.NewObjectID().Hex()}
	if p.uri == "" {
		t.Skip("no server to test on: MONGODB_URI is not set")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(p.uri))
		if err != nil {
			return
		}
		defer client.Disconnect(ctx)
		client.Database(p.db).Drop(ctx)
	})
	return p
}

// client connects to the server, through n if that is not nil.
func (p *place) client(t *testing.T, n *network) *mongo.Client {
	t.Helper()
	opt := options.Client().ApplyURI(p.uri).SetHeartbeatInterval(500 * time.Millisecond)
	if n != nil {
		opt.SetDialer(n).SetRetryWrites(false) // a retry by the driver would hide a lost reply
	}
	client, err := mongo.Connect(opt)
	noErr(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		client.Disconnect(ctx)
	})
	return client
}

// lock returns a lock with its own client. The lock's Timeout is long, because a test server may be
// busy.
func (p *place) lock(t *testing.T, n *network) *clientgo.Lock {
	t.Helper()
	l, err := clientgo.New(p.client(t, n).Database(p.db), "e", &clientgo.Options{Timeout: 20 * time.Second})
	noErr(t, err)
	return l
}

// record returns a record with the given holder.
func record(holder string) resourcelock.LeaderElectionRecord {
	now := time.Now().Truncate(time.Millisecond)
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: 15, LeaderTransitions: 3,
		AcquireTime: metav1.NewTime(now.Add(-time.Minute)), RenewTime: metav1.NewTime(now),
		Strategy: "OldestEmulationVersion", PreferredHolder: "another",
	}
}

// same reports whether two records are equal, whatever their time zones.
func same(a, b resourcelock.LeaderElectionRecord) bool {
	times := a.AcquireTime.Equal(&b.AcquireTime) && a.RenewTime.Equal(&b.RenewTime)
	a.AcquireTime, a.RenewTime = b.AcquireTime, b.RenewTime
	return times && a == b
}

// get calls Get, which must succeed.
func get(t *testing.T, l *clientgo.Lock) (resourcelock.LeaderElectionRecord, []byte) {
	t.Helper()
	r, raw, err := l.Get(t.Context())
	noErr(t, err)
	return *r, raw
}

// Get reports that a record is missing, Create succeeds only once, and Get then returns the record
// as it was written.
func TestRecord(t *testing.T) {
	p := newPlace(t)
	a, b := p.lock(t, nil), p.lock(t, nil)
	for range 2 {
		if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Fatalf("Get of a missing document returned %v, want NotFound", err)
		}
	}
	want := record("a")
	noErr(t, a.Create(t.Context(), want))
	if err := b.Create(t.Context(), record("b")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create of an existing document returned %v, want AlreadyExists", err)
	}
	got, raw := get(t, b)
	if !same(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	// If the same record is written again, candidates must see that as a change.
	if err := a.Update(t.Context(), want); err != nil {
		t.Errorf("Update after Create returned %v, want nil", err)
	}
	if _, again := get(t, b); bytes.Equal(raw, again) {
		t.Error("the document is the same after an update")
	}
	released := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	if err := a.Update(t.Context(), released); err != nil {
		t.Errorf("Update after Update returned %v, want nil", err)
	}
	if got, _ := get(t, b); !same(got, released) {
		t.Errorf("read %+v, want %+v", got, released)
	}
}

// If several locks have read the same record, only one can change it.
func TestUpdateIsCompareAndSet(t *testing.T) {
	p := newPlace(t)
	locks := []*clientgo.Lock{p.lock(t, nil), p.lock(t, nil), p.lock(t, nil), p.lock(t, nil)}
	noErr(t, locks[0].Create(t.Context(), record("nobody")))
	for round := range 10 {
		errs := make([]error, len(locks))
		for _, l := range locks {
			get(t, l)
		}
		var all sync.WaitGroup
		for i, l := range locks {
			all.Go(func() { errs[i] = l.Update(t.Context(), record(l.Identity())) })
		}
		all.Wait()
		var winners []string
		for i, l := range locks {
			switch err := errs[i]; {
			case err == nil:
				winners = append(winners, l.Identity())
			case !apierrors.IsConflict(err):
				t.Errorf("Update of a record that another lock has changed returned %v, want Conflict", err)
			default:
				if err := l.Update(t.Context(), record(l.Identity())); err == nil {
					t.Error("Update after a conflict, without a Get, succeeded")
				}
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: %d locks changed the record, want one", round, len(winners))
		}
		if got, _ := get(t, locks[0]); got.HolderIdentity != winners[0] {
			t.Errorf("the record names %q, but %q changed it", got.HolderIdentity, winners[0])
		}
	}
}

// If the reply to a write is lost, Update fails until Get succeeds.
func TestLostReply(t *testing.T) {
	for command, write := range map[string]func(*clientgo.Lock, context.Context, resourcelock.LeaderElectionRecord) error{
		"insert": (*clientgo.Lock).Create,
		"update": (*clientgo.Lock).Update,
	} {
		t.Run(command, func(t *testing.T) {
			p := newPlace(t)
			n := &network{}
			a, b := p.lock(t, n), p.lock(t, nil)
			if command == "update" {
				noErr(t, a.Create(t.Context(), record("a")))
			} else if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) { // this also connects
				t.Fatal(err)
			}
			want := record("a, again")
			n.loseReply(command)
			if err := write(a, t.Context(), want); err == nil {
				t.Error("a write whose reply was lost returned no error")
			}
			if got, _ := get(t, b); !same(got, want) {
				t.Fatalf("the record is %+v, want the one whose reply was lost", got)
			}
			if err := a.Update(t.Context(), record("a, once more")); err == nil {
				t.Error("Update succeeded without a Get")
			}
			get(t, a)
			if err := a.Update(t.Context(), record("a, at last")); err != nil {
				t.Errorf("Update after a Get returned %v, want nil", err)
			}
			if err := b.Update(t.Context(), record("b")); !apierrors.IsConflict(err) {
				t.Errorf("Update of an outdated record returned %v, want Conflict", err)
			}
		})
	}
}

// After a failed Update, even one that was never sent, every Update fails until Get succeeds.
func TestFailedUpdateNeedsGet(t *testing.T) {
	l := newPlace(t).lock(t, nil)
	noErr(t, l.Create(t.Context(), record("a")))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Update(done, record("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("Update with a context that is done returned %v, want Canceled", err)
	}
	if err := l.Update(t.Context(), record("a")); err == nil {
		t.Error("Update succeeded without a Get")
	}
	get(t, l)
	if err := l.Update(t.Context(), record("a")); err != nil {
		t.Errorf("Update after a Get returned %v, want nil", err)
	}
}

// If the context carries a transaction, the lock's commands do not become part of it.
func TestTransactionIsNotJoined(t *testing.T) {
	p := newPlace(t)
	client := p.client(t, nil)
	l, err := clientgo.New(client.Database(p.db), "e", &clientgo.Options{Timeout: 20 * time.Second})
	noErr(t, err)
	session, err := client.StartSession()
	noErr(t, err)
	defer session.EndSession(t.Context())
	noErr(t, session.StartTransaction())
	noErr(t, l.Create(mongo.NewSessionContext(t.Context(), session), record("a")))
	session.AbortTransaction(t.Context())
	get(t, l)
}

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
