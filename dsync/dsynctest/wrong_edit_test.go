package dsynctest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

var background = context.Background()

// wrongEdits are defects of edits, but for those that every script sees: see TestScriptsCheckEveryNotice.
func wrongEdits() []plant {
	return []plant{
		{"a Release beside other parts is ignored", "Edit/RefusesPartsThatCannotBeCombined", asking(func(_ driver.State, e *driver.Edit) {
			if e.Check() != nil && e.Acquire != nil {
				*e = driver.Edit{Acquire: e.Acquire}
			}
		})},
		{"the state is as before the command", "Acquire/GrantsFreeKey", answering(func(s driver.State, _ driver.Edit, done *driver.Edited) { done.State = s })},
		{"a late Acquire joins a free key", "Acquire/AfterNotAfterJoinsNothing", acquires(func(s driver.State, a *driver.Acquire) {
			if len(s.Holders) == 0 {
				a.NotAfter = s.Now.Add(time.Hour)
			}
		})},
		{"a late Acquire with First joins", "First/AfterNotAfterJoinsNothing", acquires(func(s driver.State, a *driver.Acquire) {
			if a.Claim.First {
				a.NotAfter = s.Now.Add(time.Hour)
			}
		})},
		{"tries overtake", "Queue/TryDoesNotOvertake", acquires(func(_ driver.State, a *driver.Acquire) { a.Claim.First = a.Claim.First || !a.Wait })},
		{"a repeated Acquire is granted again", "Acquire/HolderMayRepeat", func(m *dsynctest.Memory, w *wrong) {
			acquires(func(_ driver.State, a *driver.Acquire) { storecmd.Release(background, m, a.Claim, driver.Release{}) })(m, w)
		}},
		{"keys fold case", "Acquire/KeysAreApart", acquires(func(_ driver.State, a *driver.Acquire) { a.Claim.Key = strings.ToLower(a.Claim.Key) })},
		{"negative ticks are 0", "Tick/NegativeIsRefused", acquires(func(_ driver.State, a *driver.Acquire) { a.Claim.Tick = max(a.Claim.Tick, 0) })},
		{"a seal up to a negative tick is a release", "Tick/NegativeIsRefused", releases(func(_ driver.State, l *driver.Release) { l.Seal = max(l.Seal, 0) })},
		{"Load makes a record", "Load/UnusedKeyIsZero", loads(func(s *driver.State) {
			if s.Kind == "" {
				s.Kind = driver.KindMutex
			}
		})},
		{"Load shows as much of the queue as Acquire", "Load/ShowsTheQueue", loads(func(s *driver.State) {
			s.WaitersAhead = s.WaitersAhead[:min(8, len(s.WaitersAhead))]
		})},
		{"a command grants 64 claims at most", "Queue/OneCommandGrantsAllThatFit", loads(func(s *driver.State) {
			s.Holders = s.Holders[:min(64, len(s.Holders))]
		})},

		{"Release frees the key, not the claim", "Release/OnlyThatID_B05", releases(func(s driver.State, l *driver.Release) {
			if len(s.Holders) > 0 {
				l.Claim.ID = s.Holders[0].Claim
			}
		})},
		{"Keep is ignored", "Keep/EndsThatMuchLater_B35", releases(func(_ driver.State, l *driver.Release) { l.Keep = 0 })},
		{"what is kept is kept for a year at most", "Lease/LongestDurations", releases(func(_ driver.State, l *driver.Release) { l.Keep = min(l.Keep, 365*24*time.Hour) })},
		{"Discard is for the first claim only", "Discard/LetsTheNextIn", func(m *dsynctest.Memory, w *wrong) {
			w.discard = func(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
				return m.Discard(ctx, claims[:1])
			}
		}},
		{"what Forget has left is kept", "Sweep/DeletesForgottenKeys", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Forget != nil {
					return driver.Edited{Found: true}, nil
				}
				return m.Edit(ctx, e)
			}
		}},

		{"expired sessions lose what they kept", "Keep/OutlivesItsSession", dropsLeases},
		{"expired sessions lose their fixed leases", "Expired/FixedLeaseStaysUntilItsEnd", dropsLeases},
		{"leases never lapse", "Lease/AnotherMayHaveItFromItsEndOn", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e = copied(e); e.Acquire != nil {
					e.Acquire.Claim.Lease = 0
				}
				done, err := m.Edit(ctx, e)
				for i := range done.State.Holders {
					done.State.Holders[i].Until = done.State.Holders[i].Since.Add(100 * time.Millisecond)
				}
				return done, err
			}
		}},
		{"leases are rounded down", "Lease/TinyOneHasAnEnd", answering(func(_ driver.State, e driver.Edit, done *driver.Edited) {
			if e.Extend != nil && e.Extend.Claim.Lease < time.Millisecond {
				done.Holder.Until = time.Time{}
			}
		})},
		{"leases are counted in 32 bits of milliseconds", "Lease/LongestDurations", asking(func(_ driver.State, e *driver.Edit) {
			if e.Extend != nil {
				e.Extend.Claim.Lease = time.Duration(int32(e.Extend.Claim.Lease.Milliseconds())) * time.Millisecond
			}
		})},
		{"tokens are dense", "Token/GrowsOverEveryHandOff_B08", seen(func(s *driver.State) {
			s.Token /= 1024
			for i := range s.Holders {
				s.Holders[i].Token /= 1024
			}
		})},

		{"no heartbeat says what is committed", "Early/AHeartbeatSaysWhenCommitted", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				r, err := m.Heartbeat(ctx, id, given)
				r.Committed = driver.OpTime{}
				return r, err
			}
		}},
		{"Early of what is absent was applied", "Early/RepeatedOrLateChangesNothing", undoable(func(_ driver.State, _ *driver.Release, done *driver.Edited) bool {
			return !done.Found
		})},
		{"Early though somebody waits", "Early/CommittedIfSomebodyWaits", undoable(func(s driver.State, l *driver.Release, _ *driver.Edited) bool {
			return s.Waiting > 0 && l.Successor == ""
		})},
		{"Early though observed", "Early/CommittedIfObserved", undoable(func(_ driver.State, _ *driver.Release, done *driver.Edited) bool {
			return len(done.Notices) == 1 && done.Notices[0].Type == driver.NoticeChange
		})},
		{"Early with Keep", "Early/CommittedWithOptions", undoable(func(_ driver.State, l *driver.Release, _ *driver.Edited) bool { return l.Keep > 0 })},
		{"Early with Seal", "Early/CommittedWithOptions", undoable(func(_ driver.State, l *driver.Release, _ *driver.Edited) bool { return l.Seal > 0 })},
		{"Early with Successor", "Early/CommittedWithOptions", undoable(func(_ driver.State, l *driver.Release, _ *driver.Edited) bool { return l.Successor != "" })},
	}
}

// wrongValues are defects of published values and of results.
func wrongValues() []plant {
	return []plant{
		{"Publish stores nothing", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Publish != nil {
					return driver.Edited{}, nil
				}
				return m.Edit(ctx, e)
			}
		}},
		{"an empty value is none", "Publish/IsReadByAll", seen(func(s *driver.State) {
			if len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"no value is an empty one", "Publish/IsReadByAll", seen(func(s *driver.State) {
			if s.Value == nil {
				s.Value = []byte{}
			}
		})},
		{"values are texts", "Publish/IsReadByAll", seen(func(s *driver.State) {
			if s.Value != nil {
				s.Value = []byte(strings.ToValidUTF8(string(s.Value), "?"))
			}
		})},
		{"Publish prolongs a fixed lease", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Publish != nil {
					m.SetUntil(e.Publish.Claim, time.Now().Add(time.Hour))
				}
				return m.Edit(ctx, e)
			}
		}},
		{"an Extend without a number is the first", "Extend/NumberBelow1IsRefused", asking(func(_ driver.State, e *driver.Edit) {
			if e.Extend != nil {
				e.Extend.Seq = max(e.Extend.Seq, 1)
			}
		})},
		{"values are cut", "Publish/MoreThan64KiBIsRefused", asking(func(_ driver.State, e *driver.Edit) {
			if e.Publish != nil {
				e.Publish.Value = e.Publish.Value[:min(len(e.Publish.Value), driver.MaxValue)]
			}
		})},
		{"a claim's value is cut", "Publish/ClaimsOfMoreThan256BytesAreRefused", acquires(func(_ driver.State, a *driver.Acquire) {
			a.Claim.Value = a.Claim.Value[:min(len(a.Claim.Value), driver.MaxClaimValue)]
		})},

		{"an empty result is none", "Seal/ResultIsReadByAll", seen(func(s *driver.State) {
			if s.Sealed > 0 && len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"sealing shares its caller's slice", "Seal/ResultIsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			var result []byte
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Release != nil && e.Release.Seal > 0 {
					result = e.Release.Result
				}
				return m.Edit(ctx, e)
			}
			loads(func(s *driver.State) {
				if s.Sealed > 0 {
					s.Value = result
				}
			})(m, w)
		}},
		{"a sealed key has another token", "Seal/ResultIsReadByAll", seen(func(s *driver.State) {
			if s.Sealed > 0 {
				s.Token += 1024
			}
		})},
		{"Keys does not read the result", "Seal/ResultIsReadByAll", listed(func(s *driver.State) { s.Value = nil })},
		{"results are cut", "Seal/MoreThan64KiBIsRefused", releases(func(_ driver.State, l *driver.Release) {
			l.Result = l.Result[:min(len(l.Result), driver.MaxValue)]
		})},
	}
}

// wrongRaces are defects of commands that are not atomic or that arrive late.
func wrongRaces() []plant {
	const late = "Late/EveryRequestTwiceAfterEveryLaterOne_B31"
	return []plant{
		{"take-over is not atomic", "Race/FiftyOnAFreshKey_B01", notAtomic},
		{"tries are not atomic", "Race/FiftyTriesOnAFreshKey_B01", notAtomic},
		{"holders are counted before they come", "Race/NeverMoreThanTheLimit_B01", notAtomic},
		{"waiters are let in together", "Race/EveryWaiterIsServed", notAtomic},
		{"repeats that race are granted twice", "Race/RepeatsOfOneClaim", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			if e.Acquire != nil && len(s.Holders) == 0 {
				storecmd.Release(background, m, e.Acquire.Claim, driver.Release{})
			}
			return m.Edit(background, e)
		})},
		{"releases that race free twice", "Race/RepeatsOfOneRelease", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			done, err := m.Edit(background, e)
			if e.Release != nil {
				done.Found = holds(s, e.Release.Claim)
			}
			return done, err
		})},
		{"an Acquire that fails also fails for others", "Race/EachKeyHasItsOwnAnswer", func(m *dsynctest.Memory, w *wrong) {
			var mu sync.Mutex
			var failed error
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				done, err := m.Edit(ctx, e)
				if e.Acquire == nil {
					return done, err
				}
				mu.Lock()
				if err != nil {
					failed = err
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				return done, failed
			}
		}},
		{"Release decides whom to notify before it releases", "Race/EveryGrantIsNotified", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			done, err := m.Edit(background, e)
			if e.Release != nil {
				done.Notices = slices.DeleteFunc(done.Notices, func(n driver.Notice) bool {
					return !slices.ContainsFunc(s.WaitersAhead, func(w driver.Waiter) bool { return w.Claim == n.Claim })
				})
			}
			return done, err
		})},
		{"limits that change are at times unknown", "Race/ResizeAndAcquire", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			if now, _ := m.Load(background, e.Key(), 1000); e.Acquire != nil && now.Limit != s.Limit {
				return driver.Edited{}, driver.ErrMismatch
			}
			return m.Edit(background, e)
		})},
		{"Publish is not atomic", "Race/PublishAndHandOff", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			if e.Publish == nil {
				return m.Edit(background, e)
			}
			if !holds(s, e.Publish.Claim) {
				return driver.Edited{}, driver.ErrNotHeld
			}
			now, _ := m.Load(background, e.Key(), 1000)
			e = copied(e)
			e.Publish.Claim.ID = now.Holders[0].Claim
			return m.Edit(background, e)
		})},
		{"Acquire checks for the seal before it joins", "Race/SealAndAcquire", racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
			if e.Acquire != nil {
				time.Sleep(time.Millisecond) // a Release is faster
			}
			done, err := m.Edit(background, e)
			if e.Acquire != nil && s.Sealed != done.State.Sealed {
				return driver.Edited{State: s}, nil
			}
			return done, err
		})},

		{"Acquire ignores notAfter", late, acquires(func(_ driver.State, a *driver.Acquire) { a.NotAfter = time.Now().Add(time.Hour) })},
		{"Resize adds", late, asking(func(s driver.State, e *driver.Edit) {
			if z := e.Resize; z != nil {
				z.Limit += max(s.Limit, z.From) - z.From
			}
		})},
		{"a late Publish is the next holder's", late, asking(func(s driver.State, e *driver.Edit) {
			if e.Publish != nil && !holds(s, e.Publish.Claim) && len(s.Holders) > 0 {
				e.Publish.Claim.ID = s.Holders[0].Claim
			}
		})},
		{"a late Release seals for another", late, releases(func(s driver.State, l *driver.Release) {
			if l.Seal > 0 && !holds(s, l.Claim) && len(s.Holders) > 0 && s.Holders[0].Session != l.Claim.Session {
				l.Claim.ID = s.Holders[0].Claim
			}
		})},
		{"a late Release frees another's hold", late, freesAnother(func(driver.Release) bool { return true })},
		{"a late Release grants the successor what others hold", late, freesAnother(func(l driver.Release) bool { return l.Successor != "" })},
	}
}

// copied returns a copy of e that may be changed. The caller may repeat e.
func copied(e driver.Edit) driver.Edit {
	return driver.Edit{
		Release: copyOf(e.Release), Acquire: copyOf(e.Acquire), Extend: copyOf(e.Extend),
		Publish: copyOf(e.Publish), Resize: copyOf(e.Resize), Forget: copyOf(e.Forget),
	}
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// asking changes each edit before the store makes it. s is the key's state before the edit.
func asking(change func(s driver.State, e *driver.Edit)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
			s, _ := m.Load(ctx, e.Key(), 1000)
			e = copied(e)
			change(s, &e)
			return m.Edit(ctx, e)
		}
	}
}

// acquires changes each Acquire before the store executes it.
func acquires(change func(s driver.State, a *driver.Acquire)) func(*dsynctest.Memory, *wrong) {
	return asking(func(s driver.State, e *driver.Edit) {
		if e.Acquire != nil {
			change(s, e.Acquire)
		}
	})
}

// releases changes each Release before the store executes it.
func releases(change func(s driver.State, l *driver.Release)) func(*dsynctest.Memory, *wrong) {
	return asking(func(s driver.State, e *driver.Edit) {
		if e.Release != nil {
			change(s, e.Release)
		}
	})
}

// answering changes what the store returns after an edit that did not fail. s is the key's state before the edit.
func answering(change func(s driver.State, e driver.Edit, done *driver.Edited)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
			s, _ := m.Load(ctx, e.Key(), 1000)
			done, err := m.Edit(ctx, e)
			if err == nil {
				change(s, e, &done)
			}
			return done, err
		}
	}
}

// racing makes each edit with do, which gets the key's state of a millisecond ago.
func racing(do func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
			s, _ := m.Load(ctx, e.Key(), 1000)
			time.Sleep(time.Millisecond)
			return do(m, s, e)
		}
	}
}

// loads changes every state that Load returns.
func loads(change func(*driver.State)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.load = func(ctx context.Context, key string) (driver.State, error) {
			s, err := m.Load(ctx, key, 1000)
			change(&s)
			return s, err
		}
	}
}

// seen changes every state that Acquire and Load return.
func seen(change func(*driver.State)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		answering(func(_ driver.State, e driver.Edit, done *driver.Edited) {
			if e.Acquire != nil {
				change(&done.State)
			}
		})(m, w)
		loads(change)(m, w)
	}
}

// undoable makes the store report some Releases with Early as not committed yet, although Memory has committed them.
func undoable(which func(s driver.State, l *driver.Release, done *driver.Edited) bool) func(*dsynctest.Memory, *wrong) {
	return answering(func(s driver.State, e driver.Edit, done *driver.Edited) {
		if e.Release != nil && e.Release.Early && which(s, e.Release, done) {
			done.Applied = driver.OpTime{Term: 1, Time: 1}
		}
	})
}

// notAtomic grants a claim if nobody held the key a millisecond ago.
func notAtomic(m *dsynctest.Memory, w *wrong) {
	racing(func(m *dsynctest.Memory, s driver.State, e driver.Edit) (driver.Edited, error) {
		done, err := m.Edit(background, e)
		if e.Acquire != nil && len(s.Holders) == 0 && !holds(done.State, e.Acquire.Claim) {
			c, st := e.Acquire.Claim, &done.State
			st.Holders = append(st.Holders, driver.Holder{Claim: c.ID, Session: c.Session, Weight: c.Weight, Token: st.Token + 1024})
		}
		return done, err
	})(m, w)
}

// freesAnother makes some of the Releases that find nothing free the key's first holder.
func freesAnother(which func(driver.Release) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
			done, err := m.Edit(ctx, e)
			if s, _ := m.Load(ctx, e.Key(), 1000); err == nil && e.Release != nil && !done.Found && which(*e.Release) && len(s.Holders) > 0 {
				storecmd.Release(ctx, m, driver.Claim{Key: e.Key(), ID: s.Holders[0].Claim}, driver.Release{})
			}
			return done, err
		}
	}
}

// dropsLeases makes an Acquire drop all holds of the sessions that it names, even those that have an end.
func dropsLeases(m *dsynctest.Memory, w *wrong) {
	acquires(func(s driver.State, a *driver.Acquire) {
		for _, h := range s.Holders {
			if slices.Contains(a.Expired, h.Session) {
				storecmd.Release(background, m, driver.Claim{Key: a.Claim.Key, ID: h.Claim}, driver.Release{})
			}
		}
	})(m, w)
}

// noticing changes the notices that edits and Revoke return.
func noticing(change func(key string, n []driver.Notice) []driver.Notice) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		answering(func(_ driver.State, e driver.Edit, done *driver.Edited) { done.Notices = change(e.Key(), done.Notices) })(m, w)
		w.revoke = func(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
			n, err := m.Revoke(ctx, session, r)
			if err == nil {
				n = change(r.Key, n)
			}
			return n, err
		}
	}
}

// omitting leaves out the notices for which drop returns true.
func omitting(drop func(n driver.Notice) bool) func(*dsynctest.Memory, *wrong) {
	return noticing(func(_ string, n []driver.Notice) []driver.Notice { return slices.DeleteFunc(n, drop) })
}
