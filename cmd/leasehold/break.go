package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

// newBreak returns the command break.
func newBreak(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "break KEY",
		Short: "Have those who hold a key give it up",
		Long: `Ask those who hold KEY to give it up, and wait until they have. Each is told, and
has its grace to stop, or until it is done; who is first in line then has the key. It
is not taken from anyone who was not told: of a process that can't be reached it is
free when its session has lapsed.

A process learns of it at once if it waits or watches, else with its next heartbeat.
Interrupted, or over its --timeout, break does not wait any longer; who was asked
will give the key up all the same.

It exits with 0 if all who held the key do not any more, or nobody did, with 113 if
the --timeout was over before, and else as "leasehold help exit-status" says.`,
		Example: `  leasehold break invoices
  leasehold break --timeout 1m nightly`,
		Args: arguments(1, 1, "one KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := dsync.CheckKey(args[0]); err != nil {
				return err
			}
			if timeout < 0 {
				return usagef("--timeout is %v; it must be positive (0: none)", timeout)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			var before dsync.Status
			err := a.look(ctx, func(ctx context.Context, v *view) (err error) {
				before, err = v.Status(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			if len(before.Holders) == 0 {
				fmt.Fprintf(a.stdout, "%s: nobody holds it\n", plain(before.Key))
				return nil
			}
			return a.breakKey(ctx, before, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: until they have given it up)")
	return c
}

// breakKey breaks a key that was held, and says what becomes of its holders.
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
		fmt.Fprintf(a.stdout, "%s: asking %s, token %d, since %s\n", plain(before.Key), owner(h), h.Token, stamp(h.Since))
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
	left := 0
	for _, h := range before.Holders {
		verdict, err := fate(ctx, s, h, after)
		if err != nil {
			return err
		}
		if verdict == stays {
			left++
		}
		fmt.Fprintf(a.stdout, "%s: %s %s (%s)\n", plain(before.Key), owner(h), verdict, span(took))
	}
	fmt.Fprintf(a.stdout, "%s: %s, %d waiting\n", plain(after.Key), holders(after), after.Waiting)
	if broken == nil {
		return nil
	}
	return &failure{exitTimeout, fmt.Errorf("%d of %d still hold %s after %v; they were asked and will give it up; look with: leasehold status --exact %s",
		left, len(before.Holders), plain(before.Key), timeout, plain(before.Key))}
}

// stays is the fate of one who holds the key still.
const stays = "still holds it"

// fate says what became of a holder that was asked.
func fate(ctx context.Context, s *dsync.Session, h dsync.Owner, after dsync.Status) (string, error) {
	for _, now := range after.Holders {
		if now.Claim == h.Claim {
			return stays, nil
		}
	}
	m, _, err := s.Members(ctx, h.Session)
	if err != nil {
		return "", err
	}
	if len(m) == 0 || m[0].Dead {
		return "does not hold it any more: its session is over", nil
	}
	return "gave it up", nil
}

// owner names a holder.
func owner(o dsync.Owner) string {
	w := who(o)
	return fmt.Sprintf("%s (process %s on %s)", w[0], w[2], w[1])
}

// holders says who holds the key.
func holders(st dsync.Status) string {
	switch {
	case !st.Held():
		return "free now"
	case len(st.Holders) > 1:
		return fmt.Sprintf("held by %d", len(st.Holders))
	}
	return fmt.Sprintf("held by %s, token %d", owner(st.Holders[0]), st.Holders[0].Token)
}
