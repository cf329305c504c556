package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// If a leader's work makes no progress within its limit, its term ends, and the next candidate leads after the
// grace. The old leader campaigns again only when its work has returned.
func TestHangingLeaderIsDeposed(t *testing.T) {
	const limit = 20 * time.Second
	for _, group := range []bool{false, true} {
		inBubble(t, fmt.Sprint("of a group ", group), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var late []error
			s := newSession(t, store, &dsync.Options{Grace: time.Second})
			opt := &leader.Options{Hooks: &leader.Hooks{ReturnedLate: func(_ leader.Term, err error) { late = append(late, err) }}}
			ctx, stop := context.WithCancel(background)
			defer stop()
			var last, ended time.Time
			terms, hangs := 0, make(chan struct{})
			work := func(ctx context.Context) error {
				if terms++; terms > 1 {
					<-ctx.Done()
					return nil
				}
				for range 3 {
					if err := dsync.HoldFrom(ctx).Progress(limit); err != nil {
						t.Error(err)
					}
					last = time.Now()
					time.Sleep(limit - time.Millisecond)
				}
				context.AfterFunc(ctx, func() { ended = time.Now() })
				<-hangs
				return dsync.HoldFrom(ctx).Progress(limit)
			}
			var candidacy func() error
			name := "jobs/mails"
			if group {
				g, _, err := leader.NewGroup(ctx, s, "jobs", &leader.GroupOptions{Election: opt, BalanceInterval: -1})
				noErr(t, err)
				if _, err := g.Go("mails", work); err != nil {
					t.Fatal(err)
				}
				candidacy = g.Wait
			} else {
				e := electionOf(t, s, opt)
				name = "e"
				candidacy = func() error { return e.Run(ctx, work) }
			}
			done := make(chan error, 1)
			go func() { done <- candidacy() }()
			time.Sleep(time.Millisecond)
			theirs, err := leader.New(newSession(t, store, nil), name, nil)
			noErr(t, err)
			campaign(t, theirs)
			synctest.Wait()
			if d := ended.Sub(last); d != limit {
				t.Errorf("the term ended %v after the last report, want %v", d, limit)
			}
			if d := time.Since(ended); d != time.Second {
				t.Errorf("the next process led %v after the end of the term, want the grace of 1s", d)
			}
			t.Logf("the term ended %v after the last report, and the next leader was elected %v later", ended.Sub(last), time.Since(ended))
			time.Sleep(time.Minute)
			if !theirs.IsLeader() || !errors.Is(s.Healthy(), dsync.ErrStillInUse) {
				t.Errorf("the next process leads: %t; Healthy of the old leader's session: %v; want true and ErrStillInUse", theirs.IsLeader(), s.Healthy())
			}
			if m, err := theirs.Candidates(background); err != nil || len(m) != 1 {
				t.Errorf("candidates are %v (%v), want the new leader only", m, err)
			}
			close(hangs)
			synctest.Wait()
			if len(late) != 1 || !errors.Is(late[0], dsync.ErrStalled) || !errors.Is(late[0], leader.ErrLost) {
				t.Errorf("returned late: %v, want ErrStalled once", late)
			}
			time.Sleep(time.Second)
			noErr(t, theirs.Resign(background))
			time.Sleep(time.Minute)
			synctest.Wait()
			if terms != 2 {
				t.Errorf("the process had %d terms, want a second one after its work has returned", terms)
			}
			stop()
			if err := <-done; !group && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// The cause of the term's context matches ErrStalled, and the Lost hook receives the same cause.
func TestCauseOfAStalledTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lost []error
		e := newElection(t, dsynctest.NewMemory(), &leader.Options{Hooks: &leader.Hooks{Lost: func(_ leader.Term, cause error) { lost = append(lost, cause) }}})
		ctx := campaign(t, e)
		noErr(t, dsync.HoldFrom(ctx).Progress(time.Second))
		<-ctx.Done()
		synctest.Wait()
		for _, err := range slices.Concat(lost, []error{context.Cause(ctx)}) {
			if !errors.Is(err, leader.ErrLost) || !errors.Is(err, dsync.ErrStalled) || errors.Is(err, dsync.ErrRevoked) {
				t.Errorf("the cause is %v, want ErrLost with ErrStalled", err)
			}
		}
		if len(lost) != 1 {
			t.Errorf("Lost was called %d times, want once", len(lost))
		}
		if err := e.Resign(background); err != nil {
			t.Error(err)
		}
	})
}
