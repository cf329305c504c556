package leader_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// B38: somebody deletes an election's record, and another process is elected. The first leader is notified within a
// heartbeat interval, or at once if it observes the election. So the first leader no longer leads when its own
// NewLeader hook names another leader.
func TestRecordOfAnElectionDeleted(t *testing.T) {
	for _, observes := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			store := dsynctest.NewMemory()
			a := newSession(t, store, &dsync.Options{Retention: -1, Name: "A", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
			b := newSession(t, store, &dsync.Options{Retention: -1, Name: "B"})
			var opt leader.Options
			var both atomic.Bool
			var ea *leader.Election
			if observes {
				opt.Hooks = &leader.Hooks{NewLeader: func(_, now leader.Leader) {
					if now.Name == "B" && ea.IsLeader() {
						both.Store(true)
					}
				}}
			}
			ea, err := leader.New(a, "e", &opt)
			noErr(t, err)
			eb, err := leader.New(b, "e", nil)
			noErr(t, err)
			first := campaign(t, ea)
			time.Sleep(5 * ttl)
			store.DeleteRecord("e")
			deleted := time.Now()
			second := campaign(t, eb)
			if observes {
				time.Sleep(time.Second)
				if first.Err() == nil {
					t.Error("the first leader has observed the second leader, but still leads")
				}
			}
			<-first.Done()
			if d := time.Since(deleted); d > ttl/3*11/10 {
				t.Errorf("the first leader was notified after %v, want at most a heartbeat interval", d)
			}
			for _, want := range []error{leader.ErrLost, dsync.ErrRecordDeleted} {
				wantErr(t, "the cause", context.Cause(first), want)
			}
			ea.Resign(background)
			time.Sleep(5 * ttl)
			if second.Err() != nil || !eb.IsLeader() || ea.IsLeader() || both.Load() {
				t.Errorf("the second process leads: %t, %v; the first one leads: %t; both led when the hook was called: %t", eb.IsLeader(), context.Cause(second), ea.IsLeader(), both.Load())
			}
			synctest.Wait() // the log is written by another goroutine
			if said := log.String(); strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, `key \"e\" in memory`) {
				t.Errorf("the log has %q, want one error that names the record", said)
			}
			eb.Resign(background)
		})
	}
}
