package dsynctest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The type wrong is a Memory with defects. Each field that is not nil replaces a method, or replaces it only for some
// arguments.
type wrong struct {
	*dsynctest.Memory
	register   func(context.Context, driver.Member) (time.Time, error)
	heartbeat  func(context.Context, string, []driver.Revocation) (driver.HeartbeatReply, error)
	expire     func(context.Context, string) (time.Duration, error)
	unregister func(context.Context, string) error
	revoke     func(context.Context, string, driver.Revocation) ([]driver.Notice, error)
	observe    func(context.Context, string, int64, []string) error
	edit       func(context.Context, driver.Edit) (driver.Edited, error)
	discard    func(context.Context, []driver.Claim) ([]driver.Notice, error)
	listen     func(context.Context, string, []string, func(driver.Notice)) error
	notify     func(context.Context, []driver.Notice) error
	load       func(context.Context, string) (driver.State, error)
	keys       func(context.Context, string, string, int) ([]driver.State, error)
	own        func(context.Context, driver.KeyQuery) ([]driver.State, error)
	members    func(context.Context, ...string) ([]driver.Member, time.Time, error)
	lives      func(context.Context, ...string) ([]driver.Member, time.Time, error)
	observers  func(context.Context, string, string, int) ([]driver.Member, error)
	queue      func(context.Context, string) ([]driver.Waiter, error)
	sweep      func(context.Context, string, driver.SweepState, time.Duration) (driver.SweepState, error)
}

func (w *wrong) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	if w.register != nil {
		return w.register(ctx, m)
	}
	return w.Memory.Register(ctx, m)
}

func (w *wrong) Heartbeat(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	if w.heartbeat != nil {
		return w.heartbeat(ctx, id, given)
	}
	return w.Memory.Heartbeat(ctx, id, given)
}

func (w *wrong) Expire(ctx context.Context, id string, owner bool) (time.Duration, error) {
	switch {
	case owner && w.unregister != nil:
		return 0, w.unregister(ctx, id)
	case !owner && w.expire != nil:
		return w.expire(ctx, id)
	}
	return w.Memory.Expire(ctx, id, owner)
}

func (w *wrong) Revoke(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
	if w.revoke != nil {
		return w.revoke(ctx, id, r)
	}
	return w.Memory.Revoke(ctx, id, r)
}

func (w *wrong) Observe(ctx context.Context, id string, seq int64, keys []string) error {
	if w.observe != nil {
		return w.observe(ctx, id, seq, keys)
	}
	return w.Memory.Observe(ctx, id, seq, keys)
}

func (w *wrong) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if w.edit != nil {
		return w.edit(ctx, e)
	}
	return w.Memory.Edit(ctx, e)
}

func (w *wrong) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	if w.discard != nil {
		return w.discard(ctx, claims)
	}
	return w.Memory.Discard(ctx, claims)
}

func (w *wrong) Listen(ctx context.Context, id string, keys []string, f func(driver.Notice)) error {
	if w.listen != nil {
		return w.listen(ctx, id, keys, f)
	}
	return w.Memory.Listen(ctx, id, keys, f)
}

func (w *wrong) Notify(ctx context.Context, notices []driver.Notice) error {
	if w.notify != nil {
		return w.notify(ctx, notices)
	}
	return w.Memory.Notify(ctx, notices)
}

func (w *wrong) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	switch {
	case waiters <= 1000 && w.load != nil:
		return w.load(ctx, key)
	case waiters > 1000 && w.queue != nil:
		queue, err := w.queue(ctx, key)
		return driver.State{WaitersAhead: queue}, err
	}
	return w.Memory.Load(ctx, key, waiters)
}

func (w *wrong) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	switch {
	case len(q.Keys) > 0 && w.own != nil:
		return w.own(ctx, q)
	case len(q.Keys) == 0 && w.keys != nil:
		return w.keys(ctx, q.Prefix, q.After, q.Limit)
	}
	return w.Memory.Keys(ctx, q)
}

func (w *wrong) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	switch {
	case q.Liveness:
		if w.lives != nil {
			return w.lives(ctx, q.IDs...)
		}
	case len(q.IDs) > 0 || q.Observing == "" && q.After == "":
		if w.members != nil {
			return w.members(ctx, q.IDs...)
		}
	case w.observers != nil:
		m, err := w.observers(ctx, q.Observing, q.After, q.Limit)
		return m, time.Time{}, err
	}
	return w.Memory.Sessions(ctx, q)
}

func (w *wrong) Sweep(ctx context.Context, by string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
	if w.sweep != nil {
		return w.sweep(ctx, by, last, retention)
	}
	return w.Memory.Sweep(ctx, by, last, retention)
}

// A trial is a testing.TB that collects failures.
type trial struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (t *trial) fail(msg string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, msg)
}

func (t *trial) Error(args ...any)                 { t.fail(fmt.Sprintln(args...)) }
func (t *trial) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.Error(args...); t.FailNow() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); t.FailNow() }
func (t *trial) FailNow()                          { runtime.Goexit() }

// try runs a conformance case in a bubble and returns its failures.
func try(t *testing.T, name string, newStore func() driver.Store) []string {
	var failures []string
	synctest.Test(t, func(t *testing.T) {
		tr := &trial{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if !dsynctest.RunCase(tr, name, newStore()) {
				t.Errorf("no case has the name %q", name)
			}
		}()
		<-done
		failures = tr.failures
	})
	return failures
}

// A plant is a deliberate defect of a Store, with the name of the case that must find it.
type plant struct {
	defect string
	finder string
	plant  func(m *dsynctest.Memory, w *wrong)
}

func plants() []plant {
	return slices.Concat(
		wrongMembers(),
		wrongRevokes(),
		wrongEdits(),
		wrongValues(),
		wrongSweeps(),
		wrongKeys(),
		wrongObserves(),
		wrongChanges(),
		wrongListeners(),
		wrongRaces(),
	)
}

func holds(s driver.State, c driver.Claim) bool {
	_, ok := s.Holder(c.ID)
	return ok
}

func TestSuiteFindsWrongStores(t *testing.T) {
	testkit.Large(t)
	for _, tt := range plants() {
		t.Run(tt.defect, func(t *testing.T) {
			failures := try(t, tt.finder, func() driver.Store {
				w := &wrong{Memory: dsynctest.NewMemory()}
				tt.plant(w.Memory, w)
				return w
			})
			if len(failures) == 0 {
				t.Errorf("case %s does not find the defect", tt.finder)
			} else {
				t.Logf("%s: %s", tt.finder, failures[0])
			}
		})
	}
}

// Each case finds at least one defect: a case that cannot fail is useless.
func TestEveryCaseFindsSomething(t *testing.T) {
	testkit.Large(t)
	finders := make(map[string]bool)
	for _, tt := range plants() {
		finders[tt.finder] = true
	}
	scripts, sessions := dsynctest.Scripts(), dsynctest.SessionScripts()
	for _, name := range dsynctest.CaseNames() {
		setups, script := scripts[name]
		setup, session := sessions[name]
		if !finders[name] && !(script && findsIgnoredEdit(t, name, setups[0]+1)) && !(session && findsIgnoredCommand(t, name, setup+1)) {
			t.Errorf("no wrong store is planted for case %s", name)
		}
	}
}

// findsIgnoredEdit reports whether a script fails on a store that ignores one of its edits, from the given one on.
func findsIgnoredEdit(t *testing.T, script string, first int) bool {
	for ignored := first; ; ignored++ {
		edits := 0
		failures := try(t, script, func() driver.Store {
			w := &wrong{Memory: dsynctest.NewMemory()}
			w.edit = func(ctx context.Context, e driver.Edit) (done driver.Edited, err error) {
				if edits++; edits == ignored {
					done.State, err = w.Memory.Load(ctx, e.Key(), 8)
					return done, err
				}
				return w.Memory.Edit(ctx, e)
			}
			return w
		})
		if len(failures) > 0 || edits < ignored {
			return edits >= ignored
		}
	}
}

// findsIgnoredCommand reports whether a script of sessions fails on a store that ignores one of its commands, from the
// given one on.
func findsIgnoredCommand(t *testing.T, script string, first int) bool {
	for ignored := first; ; ignored++ {
		commands := 0
		failures := try(t, script, func() driver.Store {
			w := &wrong{Memory: dsynctest.NewMemory()}
			ignores := func() bool { commands++; return commands == ignored }
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				if ignores() {
					return time.Now(), nil
				}
				return w.Memory.Register(ctx, s)
			}
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				if ignores() {
					return driver.HeartbeatReply{Now: time.Now()}, nil
				}
				return w.Memory.Heartbeat(ctx, id, given)
			}
			w.expire = func(ctx context.Context, id string) (time.Duration, error) {
				if ignores() {
					return 0, nil
				}
				return w.Memory.Expire(ctx, id, false)
			}
			w.unregister = func(ctx context.Context, id string) error {
				if ignores() {
					return nil
				}
				return storecmd.Unregister(ctx, w.Memory, id)
			}
			w.observe = func(ctx context.Context, id string, seq int64, keys []string) error {
				if ignores() {
					return nil
				}
				return w.Memory.Observe(ctx, id, seq, keys)
			}
			return w
		})
		if len(failures) > 0 || commands < ignored {
			return commands >= ignored
		}
	}
}
