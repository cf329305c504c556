package dsynctest

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Faulty is a [dsync.Store] that passes requests on to another and misbehaves
// on purpose: the network between one process and the store. For several
// processes of which some are to be cut off, wrap the store once for each.
//
// Requests without a fault run on the goroutine and with the ctx of their
// caller. Delayed and repeated ones are executed on goroutines of the Faulty,
// with a context of its own that only [Faulty.Close] ends: the caller's has
// often ended by then.
//
// A Faulty is made by [NewFaulty] and must not be copied. All its methods may
// be called concurrently. At the end of a test, and of a bubble, call Close or
// Wait.
type Faulty struct {
	store  dsync.Store
	ctx    context.Context // of late requests
	cancel context.CancelFunc

	// deciding keeps decide to one call at a time, and apart from mu, so that
	// decide may call Cut and Heal.
	deciding sync.Mutex
	decide   func(Request) Fault
	seq      int

	mu       sync.Mutex
	cuts     int           // a reply that began under another number is lost
	healed   chan struct{} // nil, or closed by Heal: the store is cut off
	late     int           // goroutines
	idle     chan struct{} // nil, or closed when late is 0
	record   bool
	recorded []func(context.Context)
}

var _ dsync.Store = (*Faulty)(nil)

// NewFaulty returns a Faulty in front of store. It calls decide for each request
// when it is sent and for each event of a Watch, one call at a time, so that
// decide can count and draw from a random source without a lock. decide must
// not block, nor call a method of the store through this Faulty; it may call
// Cut and Heal. A nil decide means no faults but those of Cut.
func NewFaulty(store dsync.Store, decide func(Request) Fault) *Faulty {
	if decide == nil {
		decide = func(Request) Fault { return Fault{} }
	}
	f := &Faulty{store: store, decide: decide}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Cut cuts the store off until [Faulty.Heal]. Every request is lost that
// arrives meanwhile, and so is the reply of every request that is under way: its
// callers wait until their ctx ends. A delayed or repeated request that arrives
// after Heal is executed. A Watch goes silent, and those of its events are lost
// that come before Heal; one that is opened meanwhile waits for Heal.
func (f *Faulty) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed == nil {
		f.healed = make(chan struct{})
		f.cuts++
	}
}

// Heal ends what [Faulty.Cut] began.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed != nil {
		close(f.healed)
		f.healed = nil
	}
}

// Record makes the Faulty remember, from now on and for [Faulty.Replay], every
// request it is asked for that can change the store, lost ones included.
func (f *Faulty) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = true
}

// Replay executes every recorded request again, in the order in which they were
// sent, with ctx and without faults, and drops the answers: requests of which
// the network kept a copy, delivered after every later one. It may be called
// more than once. It returns ctx's error if ctx ended before its end.
func (f *Faulty) Replay(ctx context.Context) error {
	f.mu.Lock()
	recorded := f.recorded[:len(f.recorded):len(f.recorded)]
	f.mu.Unlock()
	for _, do := range recorded {
		if err := ctx.Err(); err != nil {
			return err
		}
		do(ctx)
	}
	return ctx.Err()
}

// Wait waits until every delayed and repeated request has been executed.
func (f *Faulty) Wait() {
	f.mu.Lock()
	if f.late == 0 {
		f.mu.Unlock()
		return
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	<-idle
}

// Close drops the delayed and repeated requests that have not arrived yet,
// aborts the context of those that are being executed, lets go of hanging
// callers, and waits for its goroutines. From then on decide is not asked any
// more and requests pass without faults, so that what is left of a test can end;
// a store that is cut off stays so. More calls of Close do nothing.
func (f *Faulty) Close() {
	f.cancel()
	f.Wait()
}

// send takes a request up: it numbers it, asks what becomes of it, and records
// it if do is not nil.
func (f *Faulty) send(r Request, do func(context.Context)) Fault {
	f.deciding.Lock()
	defer f.deciding.Unlock()
	f.seq++
	r.Seq = f.seq
	var fault Fault
	if f.ctx.Err() == nil {
		fault = f.decide(r)
	}
	if do != nil {
		f.mu.Lock()
		if f.record {
			f.recorded = append(f.recorded, do)
		}
		f.mu.Unlock()
	}
	return fault
}

// link returns the number of cuts so far, and nil or the channel that is closed
// when the store is not cut off any more.
func (f *Faulty) link() (cuts int, healed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cuts, f.healed
}

// after calls do, d from now, on a goroutine that Wait waits for, unless the
// store is cut off then or the Faulty closed.
func (f *Faulty) after(d time.Duration, do func(context.Context)) {
	f.mu.Lock()
	f.late++
	f.mu.Unlock()
	go func() {
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.late--; f.late == 0 && f.idle != nil {
				close(f.idle)
				f.idle = nil
			}
		}()
		if sleep(f.ctx, d) != nil {
			return
		}
		if _, healed := f.link(); healed == nil {
			do(f.ctx)
		}
	}()
}

// sleep returns nil after d, or ctx's error if it ends before that.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
