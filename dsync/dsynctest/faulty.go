package dsynctest

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Method names what a call of a method of [driver.Store] does, for [Counts] and [Request]: it is the method's
// name or, if the method does several things, a name for one of them.
type Method string

const (
	MethodRegister   Method = "Register"
	MethodHeartbeat  Method = "Heartbeat"
	MethodExpire     Method = "Expire"
	MethodUnregister Method = "Unregister" // Expire by the owner
	MethodRevoke     Method = "Revoke"
	MethodObserve    Method = "Observe"
	MethodAcquire    Method = "Acquire" // Edit with Acquire
	MethodRelease    Method = "Release" // Edit with Release, without Acquire
	MethodExtend     Method = "Extend"  // Edit with Extend
	MethodPublish    Method = "Publish" // Edit with Publish
	MethodResize     Method = "Resize"  // Edit with Resize
	MethodForget     Method = "Forget"  // Edit with Forget
	MethodDiscard    Method = "Discard"
	MethodListen     Method = "Listen"
	MethodNotify     Method = "Notify"
	MethodLoad       Method = "Load"
	MethodQueue      Method = "Queue" // Load of more than 1,000 waiters
	MethodKeys       Method = "Keys"
	MethodOwn        Method = "Own"       // Keys with Session: what a session holds
	MethodMembers    Method = "Members"   // Sessions, except for the next two
	MethodLiveness   Method = "Liveness"  // Sessions with Liveness
	MethodObservers  Method = "Observers" // Sessions with Observing or After
	MethodSweep      Method = "Sweep"
)

// editMethod returns the Method of e.
func editMethod(e driver.Edit) Method {
	switch {
	case e.Acquire != nil:
		return MethodAcquire
	case e.Release != nil:
		return MethodRelease
	case e.Extend != nil:
		return MethodExtend
	case e.Publish != nil:
		return MethodPublish
	case e.Forget != nil:
		return MethodForget
	}
	return MethodResize
}

func expireMethod(owner bool) Method {
	if owner {
		return MethodUnregister
	}
	return MethodExpire
}

func loadMethod(waiters int) Method {
	if waiters > maxShown {
		return MethodQueue
	}
	return MethodLoad
}

func keysMethod(q driver.KeyQuery) Method {
	if q.Session != "" {
		return MethodOwn
	}
	return MethodKeys
}

func sessionsMethod(q driver.SessionQuery) Method {
	switch {
	case q.Liveness:
		return MethodLiveness
	case len(q.IDs) == 0 && (q.Observing != "" || q.After != ""):
		return MethodObservers
	}
	return MethodMembers
}

// MethodNotice is not a method of the store: it stands for the delivery of one notice by Listen. A [Faulty] asks for
// a Fault for each, as for a request.
const MethodNotice Method = "Notice"

// A Request is one call of a method of the store, or one notice for a listener. For each, a [Faulty] asks its test
// for a [Fault].
type Request struct {
	Seq    int // number of the request in this Faulty, from 1, in the order of arrival
	Method Method

	// Session, Claim and Key are what the request names; they are empty if the method has none. Session is that of
	// the claim, of the listener, or of the argument (Register, Heartbeat, Expire, …). Claim and Key are those of
	// the claim, of the revocation, or of the notice (the first one of a Notify); Key is also that of Load, Resize
	// and Sessions.
	Session, Claim, Key string

	Replaces string            // for an Acquire: the claim of the Release in the same Edit
	Notice   driver.NoticeType // the type of the notice, or of the first one of a Notify
}

// A Fault says what happens to one [Request]. The zero Fault does nothing. The fields can be combined.
//
// A request that has arrived is executed, even if its caller has already returned: as on a network, the end of a
// context does not take back what was sent. So a Delay that is longer than the caller waits makes a request late,
// and LoseReply with Again executes twice a request whose caller never learns of either execution.
//
// A caller whose request or reply is lost waits until its ctx ends, and gets ctx's error.
// If its ctx never ends it never returns.
//
// A Fault of MethodNotice concerns one notice on its way to one listener. Delay delivers it late and holds up the
// notices behind it; Again delivers it twice; LoseRequest and LoseReply lose it; LoseRequest with Again delivers it
// late and out of order, since the notices behind it overtake it. A Fault of MethodNotify concerns notices on their
// way to the store, for all listeners.
type Fault struct {
	// Delay is the time that the request takes to reach the store.
	Delay time.Duration

	// ReplyDelay is the time that the reply takes to reach the caller.
	ReplyDelay time.Duration

	// LoseRequest: the request never reaches the store.
	LoseRequest bool

	// LoseReply: the reply never reaches the caller. A Listen is opened, but all its
	// notices are lost.
	LoseReply bool

	// Again, if positive, makes the request reach the store once more, that long after it was sent, whatever happens
	// to the first copy. A notice is delivered to its listener once more, without holding up the notices behind it.
	// Again has no effect on Listen.
	Again time.Duration

	// Hang, if positive, keeps the caller in the call for that long, even if the request
	// was answered or ctx has ended. No Store should do this, but a driver may have such a
	// bug. Hang has no effect on notices.
	Hang time.Duration
}

// A Faulty is a [driver.Store] that passes requests on to another Store and misbehaves on
// purpose, like a network between one process and the store. To cut off some of several
// processes, wrap the store once for each.
//
// A request without a fault runs on its caller's goroutine and with its caller's ctx.
// Delayed and repeated requests run on goroutines of the Faulty, with a context that only
// [Faulty.Close] ends, since the caller's has often ended by then.
//
// Create a Faulty with [NewFaulty]; it must not be copied. All its methods may be called
// concurrently. Call Close or Wait at the end of a test, and of a bubble.
type Faulty struct {
	store  driver.Store
	ctx    context.Context // context of delayed and repeated requests
	cancel context.CancelFunc

	// deciding allows one call of decide at a time. It is not mu, so that decide may call
	// Cut and Heal.
	deciding sync.Mutex
	decide   func(Request) Fault
	seq      int

	mu       sync.Mutex
	cuts     int           // number of Cuts; a reply is lost if there was a Cut since its request
	healed   chan struct{} // not nil while the store is cut off; Heal closes it
	late     int           // number of goroutines of delayed and repeated requests
	idle     chan struct{} // if not nil, closed when late is 0
	record   bool
	recorded []*recorded
}

// A recorded is a request that Replay can execute again.
type recorded struct {
	f       *Faulty
	do      func(context.Context) // nil: it can't change the store
	arrived bool                  // the request was executed or is lost; guarded by f.mu
}

var _ driver.Store = (*Faulty)(nil)

// NewFaulty returns a Faulty in front of store. It calls decide for each request that is
// sent and for each notice that a Listen receives, one call at a time, so decide can count
// and use a random source without a lock. decide must not block or call a method of the
// store through this Faulty; it may call Cut and Heal. A nil decide means no faults except
// those of Cut.
func NewFaulty(store driver.Store, decide func(Request) Fault) *Faulty {
	if decide == nil {
		decide = func(Request) Fault { return Fault{} }
	}
	f := &Faulty{store: store, decide: decide}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Cut cuts the store off until [Faulty.Heal]. Requests that arrive before then are lost, and so are the replies of
// all requests that are under way: their callers wait until their ctx ends. A delayed or repeated request that
// arrives after Heal is executed. A Listen goes on, but loses the notices that come before Heal; a Listen that is
// opened before Heal waits for it.
func (f *Faulty) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed == nil {
		f.healed = make(chan struct{})
		f.cuts++
	}
}

// Heal ends a [Faulty.Cut].
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.healed != nil {
		close(f.healed)
		f.healed = nil
	}
}

// Record makes the Faulty remember every request from now on that can change the store,
// lost ones included, for [Faulty.Replay].
func (f *Faulty) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = true
}

// Replay executes every recorded request again, in the order in which they were sent, with ctx and without faults,
// and drops the answers, as if the network had kept a copy of each request and delivered it after all later ones.
// It leaves out requests that are still being executed or delayed: the copy would arrive first, and get the answer
// that the caller waits for. Replay may be called more than once. It returns ctx's error if ctx ends before it is
// done.
func (f *Faulty) Replay(ctx context.Context) error {
	var arrived []*recorded
	f.mu.Lock()
	for _, r := range f.recorded {
		if r.arrived {
			arrived = append(arrived, r)
		}
	}
	f.mu.Unlock()
	for _, r := range arrived {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.do(ctx)
	}
	return ctx.Err()
}

// Wait waits until all delayed and repeated requests have been executed.
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

// Close drops the delayed and repeated requests and the repeated notices that have not
// arrived yet, ends the context of requests that are being executed, releases hanging
// callers, and waits for its goroutines. From then on it does not call decide, and requests
// pass without faults, so that the rest of a test can end; a store that is cut off stays
// cut off. Further calls of Close do nothing.
func (f *Faulty) Close() {
	f.cancel()
	f.Wait()
}

// send numbers a request, records it if it can change the store, and returns its fault.
func (f *Faulty) send(r Request, rec *recorded) Fault {
	f.deciding.Lock()
	defer f.deciding.Unlock()
	f.seq++
	r.Seq = f.seq
	var fault Fault
	if f.ctx.Err() == nil {
		fault = f.decide(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.record && rec != nil && rec.do != nil {
		f.recorded = append(f.recorded, rec)
	}
	return fault
}

// setArrived records that the request was executed, or is lost.
func (r *recorded) setArrived() {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.arrived = true
}

// link returns the number of cuts so far and, if the store is cut off, the channel that
// Heal closes.
func (f *Faulty) link() (cuts int, healed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cuts, f.healed
}

// after waits for d and then calls do, on a goroutine that Wait waits for. It does not call do if the store is cut
// off by then, or the Faulty closed.
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

// sleep returns nil after d, or ctx's error if ctx ends first.
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
