package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/leader"
)

// A nemesisWorker is one goroutine of a client.
type nemesisWorker struct {
	*nemesisClient
	draw *rand.Rand
}

// A nemesisHold contains the functions that acquire, check and release one kind of hold.
type nemesisHold struct {
	history.Event // fields for the recorded request

	take    func(ctx context.Context) error
	token   func() int64
	term    func() int64 // nil: no term
	lost    func() <-chan struct{}
	release func(ctx context.Context) error
	keep    time.Duration // for how long release keeps the key
	fenced  bool          // whether the hold guards a document

	handOff func(ctx context.Context, a *history.Attempt) error // transfers the term to another candidate; nil if the hold is not an election's term
}

// run acquires and releases holds until the client finishes. Only one worker in each process
// campaigns, because a term belongs to the whole process.
func (w *nemesisWorker) run(campaigns bool) {
	for !w.finishing() {
		if w.draw.IntN(25) == 0 {
			w.breakOne()
		}
		w.once(w.pick(campaigns))
		time.Sleep(w.upTo(100 * time.Millisecond))
	}
}

// upTo draws a random duration of at most d.
func (w *nemesisWorker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.draw.Int64N(int64(d)))
}

// pick chooses at random what to acquire, and how.
func (w *nemesisWorker) pick(campaigns bool) *nemesisHold {
	try := w.draw.IntN(4) == 0
	switch n := w.draw.IntN(10); {
	case campaigns && n < 5:
		return w.campaign(try)
	case n < 6:
		return w.mutex(nemesisMutexes[w.draw.IntN(len(nemesisMutexes))], try)
	case n < 8:
		return w.rwmutex()
	}
	return w.semaphore(try)
}

// either(try, wait, now) returns now if try is true, and wait otherwise. Both functions acquire a hold, but now doesn't
// wait for the key.
func either[F any](try bool, wait, now F) F {
	if try {
		return now
	}
	return wait
}

// h.of(acquire) makes h acquire a hold by calling acquire. After that, h.release waits until a
// majority has the release.
func (h *nemesisHold) of(acquire func(context.Context) (*dsync.Hold, error)) *nemesisHold {
	var hold *dsync.Hold
	h.take = func(ctx context.Context) (err error) {
		hold, err = acquire(ctx)
		return err
	}
	h.token = func() int64 { return hold.Token() }
	h.lost = func() <-chan struct{} { return hold.Lost() }
	h.release = func(ctx context.Context) error {
		if h.keep > 0 {
			return hold.ReleaseAfter(ctx, h.keep)
		}
		return hold.Release(ctx)
	}
	return h
}

// h.locks(m, try) makes h lock m with LockContext or TryLock, and release m with Unlock. A fail-over
// may undo the Unlock.
func (h *nemesisHold) locks(m *dsync.Mutex, try bool) *nemesisHold {
	h.take, h.token, h.lost = m.LockContext, m.Token, m.Lost
	if try {
		h.take = func(context.Context) error {
			if !m.TryLock() {
				return errors.New("TryLock returned false")
			}
			return nil
		}
	}
	h.release = func(context.Context) (err error) {
		if closed(m.Lost()) {
			err = dsync.ErrLost
		}
		m.Unlock()
		return err
	}
	return h
}

func (w *nemesisWorker) mutex(key string, try bool) *nemesisHold {
	h := &nemesisHold{Event: history.Event{Key: key, What: "mutex", Weight: 1, Limit: 1}, fenced: true}
	switch m := w.session.Mutex(key); w.draw.IntN(8) {
	case 0:
		d := (w.TTL/2 + w.upTo(w.TTL)).Truncate(time.Millisecond)
		h.What, h.Lease = "lease", d
		lease := either(try, m.Lease, m.TryLease)
		return h.of(func(ctx context.Context) (*dsync.Hold, error) { return lease(ctx, d) })
	case 1:
		h.keep = time.Millisecond + w.upTo(w.TTL/2)
		return h.of(either(try, m.Hold, m.TryHold))
	case 2, 3, 4:
		return h.of(either(try, m.Hold, m.TryHold))
	default:
		return h.locks(m, try)
	}
}

func (w *nemesisWorker) rwmutex() *nemesisHold {
	m := w.session.RWMutex(nemesisRW)
	if w.draw.IntN(3) == 0 {
		h := &nemesisHold{Event: history.Event{Key: nemesisRW, What: "write", Weight: rwLimit, Limit: rwLimit}}
		return h.of(m.Hold)
	}
	h := &nemesisHold{Event: history.Event{Key: nemesisRW, What: "read", Weight: 1, Limit: rwLimit, Shared: true}}
	return h.of(m.RHold)
}

func (w *nemesisWorker) semaphore(try bool) *nemesisHold {
	m, n := w.session.Semaphore(nemesisSem, seats), 1+w.draw.Int64N(seats)
	h := &nemesisHold{Event: history.Event{Key: nemesisSem, What: "semaphore", Weight: n, Limit: seats}}
	acquire := either(try, m.Hold, m.TryHold)
	return h.of(func(ctx context.Context) (*dsync.Hold, error) { return acquire(ctx, n) })
}

func (w *nemesisWorker) campaign(try bool) *nemesisHold {
	var term context.Context
	var end context.CancelFunc
	h := &nemesisHold{Event: history.Event{Key: nemesisLeader, What: "leader", Weight: 1, Limit: 1}, fenced: true}
	h.take = func(ctx context.Context) (err error) {
		// ctx bounds only the wait. The term ends with the context passed to Campaign.
		var parent context.Context
		parent, end = context.WithCancel(context.Background())
		stop := context.AfterFunc(ctx, end)
		defer stop()
		term, err = either(try, w.election.Campaign, w.election.TryCampaign)(parent)
		if err != nil {
			end()
		}
		return err
	}
	h.token = func() int64 {
		t, _ := leader.TermFrom(term)
		if term.Err() != nil {
			return 0
		}
		return t.Token
	}
	h.term = func() int64 {
		t, _ := leader.TermFrom(term)
		return t.Number
	}
	h.lost = func() <-chan struct{} {
		if term.Err() != nil { // Err reads the clock, so, unlike Done, it is never late
			return over
		}
		return term.Done()
	}
	h.handOff = func(ctx context.Context, a *history.Attempt) error {
		switch err := w.transfer(ctx, a); {
		case err == nil, errors.Is(err, leader.ErrResigned): // ErrResigned: the first candidate in the queue leads instead
			end()
			return nil
		case errors.Is(err, leader.ErrLost):
			end()
			return dsync.ErrLost
		}
		return h.release(ctx)
	}
	h.release = func(ctx context.Context) error {
		defer end()
		lost := term.Err() != nil // Err reads the clock
		if err := w.election.Resign(ctx); err != nil {
			return err
		}
		if lost {
			return dsync.ErrLost
		}
		return nil
	}
	return h
}

// transfer transfers the leadership to a random candidate.
func (w *nemesisWorker) transfer(ctx context.Context, a *history.Attempt) error {
	all, err := w.election.Candidates(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c leader.Candidate) bool { return c.IsLeader })
	if len(all) == 0 {
		return leader.ErrNotCandidate
	}
	to := all[w.draw.IntN(len(all))]
	returned := a.Transfer(to.Name, to.Session)
	if err := w.election.Transfer(ctx, to); err != nil {
		returned(err.Error())
		return err
	}
	returned("")
	return nil
}

// over is the Lost channel of a hold that has ended.
var over = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// w.once(h) acquires a hold as h describes, keeps it for a while, and releases it.
func (w *nemesisWorker) once(h *nemesisHold) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if w.draw.IntN(5) > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.upTo(3*w.TTL))
	}
	defer cancel()
	a := w.rec.Request(h.Event)
	if err := h.take(ctx); err != nil {
		a.Refused(err.Error())
		return
	}
	token := a.Granted(h.token, h.term)
	if !w.have(h, a, token) && w.draw.IntN(2) == 0 {
		// The hold is lost. Write anyway, like a worker that has not checked. The write must be refused
		// if a later holder has written.
		if h.fenced && token > 0 {
			w.write(h.Key, token)
		}
		time.Sleep(w.upTo(w.TTL / 5)) // continue into the grace, and perhaps beyond
	}
	end, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	a.Done(h.keep)
	release := h.release
	if h.handOff != nil && w.draw.IntN(4) > 0 {
		release = func(ctx context.Context) error { return h.handOff(ctx, a) }
	}
	switch err := release(end); {
	case errors.Is(err, dsync.ErrLost):
		a.Released(history.Lost)
	case err != nil:
		a.Released(err.Error())
	default:
		a.Released("")
	}
}

// w.have keeps the hold for a while, checking it and writing. It reports whether the hold
// still exists at the end.
func (w *nemesisWorker) have(h *nemesisHold, a *history.Attempt, token int64) bool {
	long := w.upTo(200 * time.Millisecond)
	switch w.draw.IntN(10) {
	case 0:
		long = w.upTo(w.TTL)
	case 1:
		long = w.upTo(4 * w.TTL) // often longer than the TTL, so that some holds get lost
	}
	end := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(end)
	if h.fenced && token > 0 {
		// Use a goroutine, because a write that hangs must not delay the checks.
		writes := &nemesisWorker{nemesisClient: w.nemesisClient, draw: rand.New(rand.NewPCG(w.draw.Uint64(), 0))}
		writing.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(writes.upTo(200 * time.Millisecond)):
					writes.write(h.Key, token)
				}
			}
		})
	}
	for over := time.Now().Add(long); a.Live(func() bool { return !closed(h.lost()) }); time.Sleep(w.upTo(20 * time.Millisecond)) {
		if time.Now().After(over) {
			return true
		}
	}
	return false
}

// breakOne breaks a random key.
func (w *nemesisWorker) breakOne() {
	keys := nemesisKeys()
	key := keys[w.draw.IntN(len(keys))]
	ctx, cancel := context.WithTimeout(context.Background(), w.upTo(2*w.TTL))
	defer cancel()
	w.rec.Put(history.Event{Type: history.Break, Key: key})
	admin.New(w.session).Break(ctx, key) // ignore the error: holders record when their holds end
}
