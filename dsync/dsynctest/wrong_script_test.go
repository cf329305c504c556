package dsynctest_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// Scripts check each notice that a command returns, and each of its fields.
func TestScriptsCheckEveryNotice(t *testing.T) {
	testkit.Large(t)
	changed := func(change func(*driver.Notice)) func(driver.Notice) []driver.Notice {
		return func(n driver.Notice) []driver.Notice {
			change(&n)
			return []driver.Notice{n}
		}
	}
	for what, change := range map[string]func(driver.Notice) []driver.Notice{
		"is missing":             func(driver.Notice) []driver.Notice { return nil },
		"is for another session": changed(func(n *driver.Notice) { n.Session += "1" }),
		"has another claim":      changed(func(n *driver.Notice) { n.Claim += "1" }),
		"has another token":      changed(func(n *driver.Notice) { n.Token++ }),
		"has another term":       changed(func(n *driver.Notice) { n.Term++ }),
		"has the other Crowded":  changed(func(n *driver.Notice) { n.Crowded = !n.Crowded }),
		"is not the only one": func(n driver.Notice) []driver.Notice {
			return []driver.Notice{n, {Type: driver.NoticeWake, Session: n.Session, Key: n.Key, Claim: n.Claim + "1"}}
		},
	} {
		for name := range dsynctest.Scripts() {
			for i, more := 0, true; more; i++ { // the notice with this number is wrong
				seen := 0
				failures := try(t, name, func() driver.Store {
					w := &wrong{Memory: dsynctest.NewMemory()}
					w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
						done, err := w.Memory.Edit(ctx, e)
						if e.Release != nil && e.Release.Seal > 0 { // a store may omit the grants
							done.Notices = slices.DeleteFunc(done.Notices, func(n driver.Notice) bool { return n.Type == driver.NoticeGrant })
						}
						before := seen
						if seen += len(done.Notices); before <= i && i < seen {
							done.Notices = slices.Replace(done.Notices, i-before, i-before+1, change(done.Notices[i-before])...)
						}
						return done, err
					}
					return w
				})
				if more = i < seen; more && len(failures) == 0 {
					t.Errorf("script %s does not see that notice %d %s", name, i, what)
				}
			}
		}
	}
}

// Scripts check each field of the states that Load and Acquire return, and what else an edit returns.
func TestScriptsCheckEveryField(t *testing.T) {
	testkit.Large(t)
	states := map[string]func(*driver.State){
		"Kind":         func(s *driver.State) { s.Kind += "1" },
		"Limit":        func(s *driver.State) { s.Limit++ },
		"Token":        func(s *driver.State) { s.Token++ },
		"Term":         func(s *driver.State) { s.Term++ },
		"Sealed":       func(s *driver.State) { s.Sealed++ },
		"Value":        func(s *driver.State) { s.Value = append(slices.Clone(s.Value), '!') },
		"no Value":     func(s *driver.State) { s.Value = nil },
		"Waiting":      func(s *driver.State) { s.Waiting++ },
		"Position":     func(s *driver.State) { s.Position++ },
		"Now":          func(s *driver.State) { s.Now = time.Time{} },
		"Holders":      func(s *driver.State) { s.Holders = s.Holders[:max(0, len(s.Holders)-1)] },
		"WaitersAhead": func(s *driver.State) { s.WaitersAhead = s.WaitersAhead[:max(0, len(s.WaitersAhead)-1)] },
	}
	for field, change := range map[string]func(*driver.Holder){
		"Claim":   func(h *driver.Holder) { h.Claim += "1" },
		"Session": func(h *driver.Holder) { h.Session += "1" },
		"Weight":  func(h *driver.Holder) { h.Weight++ },
		"Token":   func(h *driver.Holder) { h.Token++ },
		"Since":   func(h *driver.Holder) { h.Since = h.Since.Add(-time.Minute) },
		"Until":   func(h *driver.Holder) { h.Until = h.Until.Add(time.Hour) },
		"Yield":   func(h *driver.Holder) { h.Yield = !h.Yield },
	} {
		states["Holders."+field] = func(s *driver.State) { s.Holders = each(s.Holders, change) }
	}
	for field, change := range map[string]func(*driver.Waiter){
		"Claim":   func(w *driver.Waiter) { w.Claim += "1" },
		"Session": func(w *driver.Waiter) { w.Session += "1" },
		"Weight":  func(w *driver.Waiter) { w.Weight++ },
		"Tick":    func(w *driver.Waiter) { w.Tick++ },
	} {
		states["WaitersAhead."+field] = func(s *driver.State) { s.WaitersAhead = each(s.WaitersAhead, change) }
	}
	replies := map[string]func(e driver.Edit, done *driver.Edited, err *error){
		"error":     func(_ driver.Edit, _ *driver.Edited, err *error) { *err = nil },
		"non-error": func(_ driver.Edit, _ *driver.Edited, err *error) { *err = driver.ErrNotHeld },
		"Found": func(e driver.Edit, done *driver.Edited, err *error) {
			done.Found = done.Found != (*err == nil && (e.Release != nil || e.Forget != nil))
		},
		"Holder": func(e driver.Edit, done *driver.Edited, err *error) {
			if e.Extend != nil && *err == nil {
				done.Holder.Until = done.Holder.Until.Add(time.Microsecond)
			}
		},
	}
	for field, change := range states {
		replies["State."+field] = func(e driver.Edit, done *driver.Edited, err *error) {
			if e.Acquire != nil && *err == nil {
				change(&done.State)
			}
		}
	}
	delete(replies, "State.WaitersAhead") // Acquire may show waiters to a holder, or none
	for name, setups := range dsynctest.Scripts() {
		for field, change := range states {
			changed := false
			failures := try(t, name, func() driver.Store {
				w, script := &wrong{Memory: dsynctest.NewMemory()}, progress{setups: setups}
				w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
					script.count(e)
					return w.Memory.Edit(ctx, e)
				}
				w.load = func(ctx context.Context, key string) (driver.State, error) {
					s, err := w.Memory.Load(ctx, key, 1000)
					if right := s; script.begun() && key == script.key {
						change(&s)
						changed = changed || !reflect.DeepEqual(s, right)
					}
					return s, err
				}
				return w
			})
			if changed && len(failures) == 0 {
				t.Errorf("script %s does not see that Load returns another %s", name, field)
			}
		}
		for field, change := range replies {
			changed := false
			failures := try(t, name, func() driver.Store {
				w, script := &wrong{Memory: dsynctest.NewMemory()}, progress{setups: setups}
				w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
					done, err := w.Memory.Edit(ctx, e)
					script.count(e)
					if right, rightErr := done, err; script.begun() {
						change(e, &done, &err)
						changed = changed || err != rightErr || !reflect.DeepEqual(done, right)
					}
					return done, err
				}
				return w
			})
			if changed && len(failures) == 0 {
				t.Errorf("script %s does not see that an edit returns another %s", name, field)
			}
		}
	}
}

// each returns a copy of list, with each element changed.
func each[T any](list []T, change func(*T)) []T {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

// The type progress tells how far the scripts of a case are. Each has a key of its own.
type progress struct {
	setups []int // how many edits make the first state of each script
	key    string
	edits  int // of that key
}

func (p *progress) count(e driver.Edit) {
	if p.key != "" && p.key != e.Key() {
		p.setups, p.edits = p.setups[1:], 0
	}
	p.key = e.Key()
	p.edits++
}

// begun reports whether the script is past its first state.
func (p *progress) begun() bool { return p.edits > p.setups[0] }
