package clientgo

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A document is the stored state of an election. Its times are only for display, as in client-go.
// They are stored with a precision of milliseconds.
type document struct {
	Name            string        `bson:"_id"`
	Version         bson.ObjectID `bson:"version"`
	Holder          string        `bson:"holder"` // "": released
	LeaseSeconds    int           `bson:"leaseDurationSeconds"`
	AcquireTime     time.Time     `bson:"acquireTime"`
	RenewTime       time.Time     `bson:"renewTime"`
	Transitions     int           `bson:"transitions"`
	Strategy        string        `bson:"strategy,omitempty"`
	PreferredHolder string        `bson:"preferredHolder,omitempty"`
}

// newDocument returns the document of a record, with a new version.
func newDocument(name string, r resourcelock.LeaderElectionRecord) *document {
	return &document{
		Name:            name,
		Version:         bson.NewObjectID(),
		Holder:          r.HolderIdentity,
		LeaseSeconds:    r.LeaseDurationSeconds,
		AcquireTime:     r.AcquireTime.Time,
		RenewTime:       r.RenewTime.Time,
		Transitions:     r.LeaderTransitions,
		Strategy:        string(r.Strategy),
		PreferredHolder: r.PreferredHolder,
	}
}

func (d *document) record() *resourcelock.LeaderElectionRecord {
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity:       d.Holder,
		LeaseDurationSeconds: d.LeaseSeconds,
		AcquireTime:          metav1.NewTime(d.AcquireTime),
		RenewTime:            metav1.NewTime(d.RenewTime),
		LeaderTransitions:    d.Transitions,
		Strategy:             coordinationv1.CoordinatedLeaseStrategy(d.Strategy),
		PreferredHolder:      d.PreferredHolder,
	}
}
