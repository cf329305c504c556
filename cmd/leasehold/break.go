package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/spf13/cobra"
)

func newBreak(a *app) *cobra.Command {
	var timeout time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "break KEY",
		Short: "Make the holders of a key release it",
		Long: `Ask the holders of KEY to release it, and wait until they have. Each holder is
notified and has its grace to stop; then the first waiter gets the key. The key is
never taken from a holder that was not notified: if a process can't be reached, the
key becomes free when its session expires.

A process is notified at once if the server can notify and the process has held the
key for a second, otherwise with its next heartbeat. If break is interrupted, or its
--timeout runs out, it stops waiting, but the holders still release the key.

With --json break prints one object when it is done, or when --timeout has run out:

  key      the key
  took_ms  how long break waited
  former   the holders at the start, as in "leasehold status --json", each with an
           outcome: released, expired (the holder's session) or holds
  status   the key's status at the end: the fields of "leasehold status --json"

break exits with 0 if no former holder holds the key any more, or if there was none; with 113
if --timeout ran out first; with 118 if there is no such key; otherwise see "leasehold help exit-status".`,
		Example: `  leasehold break invoices
  leasehold break --timeout 1m nightly
  leasehold break --json invoices | jq -r '.former[] | [.host, .outcome] | @tsv'`,
		Args:              arguments(1, 1, "one KEY"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, admin.Status.Held),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := dsync.CheckKey(args[0]); err != nil {
				return err
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error {
				// A registration in the wrong --db would create a collection there, so "no such key" is believed without
				// one. A deposed primary, too, says so of a key that was first used after the fail-over.
				err := a.view(ctx, func(ctx context.Context, v *view) error {
					st, err := v.Status(ctx, args[0])
					if err == nil && st.Kind == "" {
						err = nothing(plain(args[0]) + ": no such key")
					}
					return err
				})
				if err != nil {
					return err
				}
				return a.breakKey(ctx, args[0], timeout, asJSON)
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: until the key is released)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line")
	return c
}

// A breakJSON is the output of break --json: see the command's help.
type breakJSON struct {
	Key    string                                    `json:"key"`
	Took   statusjson.Milliseconds                   `json:"took_ms"`
	Former []formerJSON                              `json:"former"`
	Status statusjson.Status[statusjson.Participant] `json:"status"`
}

// A formerJSON is a former holder and what became of it.
type formerJSON struct {
	statusjson.Participant
	Outcome outcome `json:"outcome"`
}

// breakKey breaks a key and prints what became of its holders.
func (a *app) breakKey(ctx context.Context, key string, timeout time.Duration, asJSON bool) (err error) {
	s, err := a.connect(ctx, dsync.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if bad := s.Close(context.WithoutCancel(ctx)); err == nil {
			err = bad
		}
	}()
	within := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	begin := time.Now()
	before, err := beforeBreak(within, s, key)
	switch {
	case err != nil:
		return err
	case len(before.Holders) == 0 && asJSON:
		return printJSON(a.stdout, breakJSON{Key: before.Key, Former: []formerJSON{}, Status: newKeyJSON(before)})
	case len(before.Holders) == 0:
		why := ""
		if before.Sealed {
			why = ": it is a once that is done; after leasehold forget it can run again"
		}
		fmt.Fprintf(a.stdout, "%s: nobody holds it%s\n", plain(before.Key), why)
		return nil
	}
	say := func(format string, args ...any) {
		if !asJSON {
			fmt.Fprintf(a.stdout, "%s: %s\n", plain(before.Key), fmt.Sprintf(format, args...))
		}
	}
	for _, h := range before.Holders {
		say("asking %s to release it; token %d, held since %s", describe(h), h.Token, stamp(h.Since))
	}
	inspector := admin.New(s)
	broken := inspector.Break(within, before.Key)
	took := time.Since(begin)
	if broken != nil && !errors.Is(broken, context.DeadlineExceeded) {
		return broken
	}
	after, err := inspector.Status(ctx, before.Key)
	if err != nil {
		return err
	}
	holding := 0
	answer := breakJSON{Key: before.Key, Took: statusjson.Milliseconds(took), Status: newKeyJSON(after)}
	for _, h := range before.Holders {
		became, err := outcomeOf(ctx, inspector, h, after)
		if err != nil {
			return err
		}
		if became == stillHolds {
			holding++
		}
		say("%s %s (%s)", describe(h), outcomes[became], span(took))
		answer.Former = append(answer.Former, formerJSON{statusjson.NewParticipant(h, false, before.Now), became})
	}
	say("%s, %d waiting", holders(after), after.Waiting)
	if asJSON {
		if err := printJSON(a.stdout, answer); err != nil {
			return err
		}
	}
	if broken == nil {
		return nil
	}
	return &failure{exitTimeout, fmt.Errorf("%d of %d still hold %s after %v; they were notified and will release it; check with: leasehold status --exact %s",
		holding, len(before.Holders), plain(before.Key), timeout, plain(before.Key))}
}

// beforeBreak returns the status of the key before it is broken. It registers s first, as Break does: otherwise a deposed
// primary may answer, and hide a holder. During a fail-over either command may fail, so both are repeated until ctx ends,
// unless the store refuses them.
func beforeBreak(ctx context.Context, s *dsync.Session, key string) (st admin.Status, err error) {
	for last := ""; ; {
		if _, err = engine.Of(s).Register(ctx); err == nil {
			st, err = admin.New(s).Status(ctx, key)
		}
		if err == nil || errors.Is(err, dsync.ErrRefused) {
			return st, err
		}
		if ctx.Err() == nil {
			last = "; the store's last error: " + err.Error()
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return st, fmt.Errorf("it is not known who holds %s: %w%s", plain(key), ctx.Err(), last)
		}
	}
}

// An outcome is what became of a holder that was asked to release a key.
type outcome string

const (
	gaveUp     outcome = "released"
	expired    outcome = "expired"
	stillHolds outcome = "holds"
)

// outcomes describes each outcome in words.
var outcomes = map[outcome]string{
	gaveUp:     "released it",
	expired:    "no longer holds it: its session expired",
	stillHolds: "still holds it",
}

// outcomeOf returns what became of the holder h. The parameter after is the status of the key after the break.
func outcomeOf(ctx context.Context, inspector *admin.Inspector, h admin.Participant, after admin.Status) (outcome, error) {
	for _, now := range after.Holders {
		if now.Claim == h.Claim {
			return stillHolds, nil
		}
	}
	m, _, err := inspector.Members(ctx, h.Session)
	if err != nil {
		return "", err
	}
	if len(m) == 0 || m[0].Expired {
		return expired, nil
	}
	return gaveUp, nil
}

// describe returns a holder's name, process and host.
func describe(o admin.Participant) string {
	w := who(o)
	return fmt.Sprintf("%s (process %s on %s)", w[0], w[2], w[1])
}

// holders describes the holders of the key.
func holders(st admin.Status) string {
	switch {
	case !st.Held():
		return "free now"
	case len(st.Holders) > 1:
		return fmt.Sprintf("held by %d", len(st.Holders))
	}
	return fmt.Sprintf("held by %s, token %d", describe(st.Holders[0]), st.Holders[0].Token)
}
