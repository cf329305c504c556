package dsynctest

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Method identifies the operation that a call of a [driver.Store] performs, for [Counts] and [Request]. It is
// the name of the method called, or a more specific name if the method performs several operations.
type Method string

const (
	MethodRegister   Method = "Register"
	MethodHeartbeat  Method = "Heartbeat"
	MethodExpire     Method = "Expire"
	MethodUnregister Method = "Unregister" // Expire by the session itself
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
	MethodOwn        Method = "Own"       // Keys with Session: the keys that a session holds
	MethodMembers    Method = "Members"   // other calls of Sessions
	MethodLiveness   Method = "Liveness"  // Sessions with Liveness
	MethodObservers  Method = "Observers" // Sessions with Observing or After
	MethodSweep      Method = "Sweep"
)

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

// MethodNotice is not a method of the store, but stands for the delivery of one notice by Listen. A [Faulty] treats
// each delivery like a request, with a Fault of its own.
const MethodNotice Method = "Notice"

// A Request is one call of a method of the store, or one notice for a listener. For each Request, a [Faulty] asks
// the test for a [Fault].
type Request struct {
	Seq    int // number of the request in this Faulty, counted from 1
	Method Method

	// Session, Claim and Key are the session, the claim and the key that the request names. They are empty if it names
	// none. They come from the request's claim (for Discard, the first), revocation, notice (for Notify, the first) or
	// other arguments. For a delivered notice, Session is the listener's. Load, Resize, Forget and Sessions set only
	// Key.
	Session, Claim, Key string

	Replaces string            // for an Acquire: the claim of the Release in the same Edit
	Notice   driver.NoticeType // the type of the notice; for Notify, of the first notice
}

// A Fault determines what happens to one [Request]. The zero Fault does nothing. The fields can be combined.
//
// As on a network, the end of a context does not recall a request that was sent: a delayed request is executed even if
// its caller has already returned. With LoseReply and Again, a request is executed twice, and its caller learns of
// neither execution.
//
// A caller whose request or reply is lost waits until its ctx ends, and gets ctx's error. If ctx never ends, the
// call never returns.
//
// A Fault of MethodNotice concerns one notice on its way to one listener. Delay and ReplyDelay deliver the notice late
// and hold up the notices behind it. Again delivers the notice twice. LoseRequest and LoseReply lose the notice.
// LoseRequest with Again delivers the notice late, without delaying the notices behind it. A Fault of MethodNotify
// concerns notices on their way to the store, for all listeners.
type Fault struct {
	// Delay is the time that the request takes to reach the store.
	Delay time.Duration

	// ReplyDelay is the time that the reply takes to reach the caller.
	ReplyDelay time.Duration

	// LoseRequest makes the request never reach the store.
	LoseRequest bool

	// LoseReply makes the reply never reach the caller. A Listen begins, but all its notices are lost.
	LoseReply bool

	// Again, if positive, makes a second copy of the request reach the store, whatever happens to the first copy.
	// Again is the time from the sending of the request to the arrival of that copy. With Again, a notice reaches its
	// listener a second time, without holding up the notices behind it. Again has no effect on Listen.
	Again time.Duration

	// Hang, if positive, keeps the caller in the call for that long, even if the request
	// was answered or ctx has ended. No Store should do this, but a driver may have such a
	// bug. Hang has no effect on notices.
	Hang time.Duration
}

// A Faulty is a [driver.Store] that passes requests on to another Store and misbehaves on purpose, like a network
// between one process and the store. To cut off only some processes, give each process a Faulty of its own.
//
// A request without a fault runs on its caller's goroutine and with its caller's ctx. Delayed and repeated requests
// run on goroutines of the Faulty. Their context ends only with [Faulty.Close], because the caller's ctx has often
// ended when they run.
//
// Create a Faulty with [NewFaulty]; it must not be copied. All its methods may be called concurrently. Call Close
// or Wait at the end of a test, and before a bubble ends.
type Faulty struct {
	store  driver.Store
	ctx    context.Context // context of delayed and repeated requests
	cancel context.CancelFunc

	// deciding allows one call of decide at a time. It is not mu, so that decide may call Cut and Heal.
	deciding sync.Mutex
	decide   func(Request) Fault
	seq      int

	mu       sync.Mutex
	cuts     int           // number of calls of Cut so far: if it changes between a request and its reply, the reply is lost
	healed   chan struct{} // not nil while the store is cut off; Heal closes it
	late     int           // number of goroutines of delayed and repeated requests
	idle     chan struct{} // if not nil, closed when late is 0
	record   bool
	recorded []*recorded
}

// The type recorded describes a request that was sent. Replay may execute the request again.
type recorded struct {
	f       *Faulty
	do      func(context.Context) // nil if the request can't change the store
	arrived bool                  // the request was executed or is lost; guarded by f.mu
}

var _ driver.Store = (*Faulty)(nil)

// NewFaulty returns a Faulty in front of store. The Faulty calls decide for each request that is sent and for each
// notice that a Listen receives. It makes one call at a time, so decide needs no lock to count or to use a random
// source. decide must not block or call a method of the store through this Faulty; it may call Cut and Heal. If decide
// is nil, only Cut causes faults.
func NewFaulty(store driver.Store, decide func(Request) Fault) *Faulty {
	if decide == nil {
		decide = func(Request) Fault { return Fault{} }
	}
	f := &Faulty{store: store, decide: decide}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Cut cuts the store off until [Faulty.Heal]. Requests that arrive in the meantime are lost, and so are the replies
// to all requests that are under way. The callers wait until their ctx ends. A delayed or repeated request that
// arrives after Heal is executed. A running Listen goes on, but loses the notices that come before Heal; a new
// Listen waits for Heal.
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

// Record makes the Faulty remember every later request that can change the store, even if the request is lost.
// [Faulty.Replay] executes these requests again.
func (f *Faulty) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = true
}

// Replay executes every recorded request again, in the order in which they were sent, with ctx and without faults,
// and drops the answers. It acts like a network that has kept a copy of each request and delivers the copies after
// all requests. It leaves out requests that are delayed or still being executed, because a copy could arrive before
// the original and get the answer meant for the caller. Replay may be called more than once. It returns ctx's error
// if ctx ends before Replay is done.
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

// Wait waits until all delayed and repeated requests have been executed, or lost because of a Cut.
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

// Close drops delayed requests, repeated requests and repeated notices that have not arrived yet. It ends the context
// of delayed and repeated requests that are being executed, releases hanging callers, and waits for the Faulty's
// goroutines. From then on the Faulty does not call decide, and requests pass without faults, so that the rest of the
// test can finish. A store that is cut off stays cut off. Further calls of Close do nothing.
func (f *Faulty) Close() {
	f.cancel()
	f.Wait()
}

// send numbers a request and returns its fault. After Record, it also records the request if Replay may execute it.
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

// setArrived records that the request was executed or lost.
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

// after waits for d and then calls do, on a goroutine that Wait waits for. If the store is cut off at that time or
// the Faulty has been closed, it does not call do.
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
