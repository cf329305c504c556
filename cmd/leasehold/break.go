package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

// newBreak returns the break command.
func newBreak(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "break KEY",
		Short: "Make the holders of a key give it up",
		Long: `Ask the holders of KEY to give it up, and wait until they have. Each holder is
notified and has its grace to stop; then the first waiter gets the key. The key is
never taken from a holder that was not notified: if a process can't be reached, the
key becomes free when its session expires.

A process learns of the request at once if the server can notify and it has held the
key for a second, else with its next heartbeat. If break is interrupted, or its
--timeout runs out, it stops waiting, but the holders still give up the key.

It exits with 0 if no former holder holds the key any more, or nobody did; with 113 if
--timeout ran out first; with 118 if there is no such key; otherwise see "leasehold help exit-status".`,
		Example: `  leasehold break invoices
  leasehold break --timeout 1m nightly`,
		Args:              arguments(1, 1, "one KEY"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, dsync.Status.Held),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := dsync.CheckKey(args[0]); err != nil {
				return err
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error {
				var before dsync.Status
				err := a.view(ctx, func(ctx context.Context, v *view) (err error) {
					before, err = v.Status(ctx, args[0])
					return err
				})
				switch {
				case err != nil:
					return err
				case before.Kind == "":
					return nothing(plain(args[0]) + ": no such key")
				case len(before.Holders) == 0:
					why := ""
					if before.Sealed {
						why = ": it is a once that has been done; leasehold forget makes it run again"
					}
					fmt.Fprintf(a.stdout, "%s: nobody holds it%s\n", plain(before.Key), why)
					return nil
				}
				return a.breakKey(ctx, before, timeout)
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: until the key was given up)")
	return c
}

// breakKey breaks a key that was held, and prints what became of its holders.
func (a *app) breakKey(ctx context.Context, before dsync.Status, timeout time.Duration) (err error) {
	s, err := a.connect(ctx, dsync.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if bad := s.Close(context.WithoutCancel(ctx)); err == nil {
			err = bad
		}
	}()
	for _, h := range before.Holders {
		fmt.Fprintf(a.stdout, "%s: asking %s, token %d, since %s\n", plain(before.Key), describe(h), h.Token, stamp(h.Since))
	}
	within := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	begin := time.Now()
	broken := s.Break(within, before.Key)
	took := time.Since(begin)
	if broken != nil && !errors.Is(broken, context.DeadlineExceeded) {
		return broken
	}
	after, err := s.Status(ctx, before.Key)
	if err != nil {
		return err
	}
	holding := 0
	for _, h := range before.Holders {
		verdict, err := fate(ctx, s, h, after)
		if err != nil {
			return err
		}
		if verdict == stillHolds {
			holding++
		}
		fmt.Fprintf(a.stdout, "%s: %s %s (%s)\n", plain(before.Key), describe(h), verdict, span(took))
	}
	fmt.Fprintf(a.stdout, "%s: %s, %d waiting\n", plain(after.Key), holders(after), after.Waiting)
	if broken == nil {
		return nil
	}
	return &failure{exitTimeout, fmt.Errorf("%d of %d still hold %s after %v; they were asked and will give it up; check with: leasehold status --exact %s",
		holding, len(before.Holders), plain(before.Key), timeout, plain(before.Key))}
}

// stillHolds is the fate of a holder that has not given the key up yet.
const stillHolds = "still holds it"

// fate says whether a holder that was asked to give the key up has done so.
func fate(ctx context.Context, s *dsync.Session, h dsync.Participant, after dsync.Status) (string, error) {
	for _, now := range after.Holders {
		if now.Claim == h.Claim {
			return stillHolds, nil
		}
	}
	m, _, err := s.Members(ctx, h.Session)
	if err != nil {
		return "", err
	}
	if len(m) == 0 || m[0].Expired {
		return "no longer holds it: its session is over", nil
	}
	return "gave it up", nil
}

// describe names a holder.
func describe(o dsync.Participant) string {
	w := who(o)
	return fmt.Sprintf("%s (process %s on %s)", w[0], w[2], w[1])
}

// holders describes the holders of the key.
func holders(st dsync.Status) string {
	switch {
	case !st.Held():
		return "free now"
	case len(st.Holders) > 1:
		return fmt.Sprintf("held by %d", len(st.Holders))
	}
	return fmt.Sprintf("held by %s, token %d", describe(st.Holders[0]), st.Holders[0].Token)
}
