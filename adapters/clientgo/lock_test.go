package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold-go/leasehold/adapters/clientgo"
)

// nowhere returns a database on a server that does not exist.
func nowhere(t *testing.T) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	noErr(t, err)
	t.Cleanup(func() { client.Disconnect(context.Background()) })
	return client.Database("app")
}

func TestNewRefusesNonsense(t *testing.T) {
	db, pod := nowhere(t), &corev1.Pod{}
	for what, f := range map[string]func() (*clientgo.Lock, error){
		"the database is nil": func() (*clientgo.Lock, error) { return clientgo.New(nil, "e", nil) },
		"name":                func() (*clientgo.Lock, error) { return clientgo.New(db, "", nil) },
		"Timeout is -1s":      func() (*clientgo.Lock, error) { return clientgo.New(db, "e", &clientgo.Options{Timeout: -time.Second}) },
		"Timeout is 1ms": func() (*clientgo.Lock, error) {
			return clientgo.New(db, "e", &clientgo.Options{Timeout: time.Millisecond})
		},
		"Events":      func() (*clientgo.Lock, error) { return clientgo.New(db, "e", &clientgo.Options{Events: &events{}}) },
		"EventObject": func() (*clientgo.Lock, error) { return clientgo.New(db, "e", &clientgo.Options{EventObject: pod}) },
	} {
		if l, err := f(); l != nil || err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("New returned %v, %v, want an error about %q", l, err, what)
		}
	}
}

func TestIdentity(t *testing.T) {
	db, seen := nowhere(t), map[string]bool{"": true}
	for range 10 {
		l, err := clientgo.New(db, "e", nil)
		noErr(t, err)
		if id := l.Identity(); seen[id] {
			t.Errorf("identity %q is empty or not unique", id)
		} else {
			seen[id] = true
		}
	}
	l, err := clientgo.New(db, "e", &clientgo.Options{Identity: "pod-1"})
	if err != nil || l.Identity() != "pod-1" {
		t.Errorf("Identity is %q (error %v), want pod-1", l.Identity(), err)
	}
}

func TestDescribe(t *testing.T) {
	db := nowhere(t)
	for want, opt := range map[string]*clientgo.Options{
		"app.elections/e": nil,
		"app.leaders/e":   {Collection: "leaders"},
	} {
		l, err := clientgo.New(db, "e", opt)
		if err != nil || l.Describe() != want {
			t.Errorf("Describe returned %q (error %v), want %q", l.Describe(), err, want)
		}
	}
}

// events is an EventRecorder that keeps what is recorded.
type events []string

func (e *events) Eventf(obj runtime.Object, kind, reason, message string, args ...any) {
	*e = append(*e, fmt.Sprintf("%s %s %s: %s", obj.(*corev1.Pod).Name, kind, reason, fmt.Sprintf(message, args...)))
}

func TestRecordEvent(t *testing.T) {
	var got events
	pod := &corev1.Pod{}
	pod.Name = "pod-1"
	for _, opt := range []clientgo.Options{{}, {Identity: "me", Events: &got, EventObject: pod}} {
		l, err := clientgo.New(nowhere(t), "e", &opt)
		noErr(t, err)
		l.RecordEvent("became leader")
	}
	if want := "pod-1 Normal LeaderElection: me became leader"; len(got) != 1 || got[0] != want {
		t.Errorf("recorded the events %q, want %q", got, want)
	}
}

// If the server is unreachable, Get and Create fail after Timeout, with errors that cannot be mistaken for NotFound or
// AlreadyExists.
func TestUnreachable(t *testing.T) {
	l, err := clientgo.New(nowhere(t), "e", &clientgo.Options{Timeout: 50 * time.Millisecond})
	noErr(t, err)
	var lock resourcelock.Interface = l
	begin := time.Now()
	_, _, err = lock.Get(t.Context())
	if !errors.Is(err, context.DeadlineExceeded) || apierrors.IsNotFound(err) {
		t.Errorf("Get returned %v, want a time-out", err)
	}
	err = lock.Create(t.Context(), resourcelock.LeaderElectionRecord{})
	if !errors.Is(err, context.DeadlineExceeded) || apierrors.IsAlreadyExists(err) {
		t.Errorf("Create returned %v, want a time-out", err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("Update without a Get returned %v, want an error that says that the version is unknown", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the three calls took %v, want at most 10s", took)
	}
}
