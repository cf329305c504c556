package mongo

import (
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// A PrimaryWatch learns from the driver which member of a replica set is the primary. With it, a listener moves to a
// new primary as soon as the driver finds one. Without it, the listener has to ask, because its cursor on a deposed
// member stays open, with no error and no notices.
//
// [Connect] makes its own. For [Open] and [NewStore], whose client exists already, make one and set it in both the
// client's options and [Options].PrimaryWatch:
//
//	watch := new(dsyncmongo.PrimaryWatch)
//	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerMonitor(watch.ServerMonitor(nil)))
//	…
//	locks, err := dsyncmongo.Open(ctx, client.Database("app"), &dsyncmongo.Options{PrimaryWatch: watch})
//
// A PrimaryWatch is for one client, and for any number of stores on it. The zero value is ready
// to use. It must not be copied. All methods may be called concurrently.
type PrimaryWatch struct {
	changed signal

	mu      sync.Mutex
	seen    bool   // the driver has called the monitor
	primary string // the last known primary; kept while the driver knows none
}

// ServerMonitor returns a monitor for the options of the client. This monitor also calls the functions of the monitor
// passed as next, which may be nil and is not changed.
func (w *PrimaryWatch) ServerMonitor(next *event.ServerMonitor) *event.ServerMonitor {
	var m event.ServerMonitor
	if next != nil {
		m = *next
	}
	then := m.TopologyDescriptionChanged
	m.TopologyDescriptionChanged = func(e *event.TopologyDescriptionChangedEvent) {
		w.see(e.NewDescription)
		if then != nil {
			then(e)
		}
	}
	return &m
}

// see compares the primary in d with the last known primary. It keeps the last known primary while the driver knows
// none, so nothing changes if the driver finds the same primary again after a broken connection. The driver holds a
// lock while it calls see, so see must not block.
func (w *PrimaryWatch) see(d event.TopologyDescription) {
	primary := primaryOf(d)
	w.mu.Lock()
	w.seen = true
	changed := primary != "" && primary != w.primary
	if changed {
		w.primary = primary
	}
	w.mu.Unlock()
	if changed {
		w.changed.send()
	}
}

// primaryOf returns a string that identifies a replica set's primary and its term as primary (see
// server.member), or "" if there is no primary.
func primaryOf(d event.TopologyDescription) string {
	for _, s := range d.Servers {
		if s.Kind == "RSPrimary" {
			return fmt.Sprint(s.Addr, s.ElectionID, s.TopologyVersionProcessID)
		}
	}
	return ""
}

// attached reports whether the driver has called the monitor.
func (w *PrimaryWatch) attached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// A signal wakes all goroutines that wait for it.
type signal struct {
	mu sync.Mutex
	c  chan struct{} // nil: nobody waits
}

// next returns a channel that the next send closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
