package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/spf13/cobra"
)

func newForget(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "forget KEY",
		Short: "Forget a key that nobody uses, so that a once can run again",
		Long: `Remove the state that the store keeps for KEY while it has no holder and no waiters: that a
once is done, and its result; the last tick of a periodic; the number of terms of an
election; the size that a semaphore was given. Afterwards "leasehold once KEY" runs its
command again, and the terms of the election count from 1. Fencing tokens keep growing. The
rest of the key's record is deleted after a week, like that of every idle lock
(dsync.Options.Retention).

A process that already knows that the once is done does not run it again.

With --json it prints an object with key, forgotten (false if there is no such key) and
status: the key's status before, with the fields of "leasehold status --json".

It exits with 0 if the key was forgotten or there is no such key; with 112 if the key has
a holder or waiters, and then nothing is forgotten; otherwise see "leasehold help
exit-status".`,
		Example: `  leasehold forget daily-2026-11-24
  leasehold forget schema-v7`,
		Args:              arguments(1, 1, "one KEY"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, func(st admin.Status) bool { return !st.Held() && st.Waiting == 0 }),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := dsync.CheckKey(args[0]); err != nil {
				return err
			}
			s, err := a.connect(cmd.Context(), dsync.Options{})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(cmd.Context()))) }()
			inspector := admin.New(s)
			st, err := inspector.Status(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			forgotten := st.Kind != ""
			if forgotten {
				if err := inspector.Forget(cmd.Context(), st.Key); err != nil {
					return err
				}
			}
			switch {
			case asJSON:
				return printJSON(a.stdout, forgetJSON{st.Key, forgotten, newKeyJSON(st)})
			case !forgotten:
				fmt.Fprintf(a.stdout, "%s: no such key\n", plain(st.Key))
			default:
				fmt.Fprintf(a.stdout, "%s: forgotten%s\n", plain(st.Key), was(st))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line")
	return c
}

// A forgetJSON is the JSON output of the forget command; its help describes the fields.
type forgetJSON struct {
	Key       string                                    `json:"key"`
	Forgotten bool                                      `json:"forgotten"`
	Status    statusjson.Status[statusjson.Participant] `json:"status"`
}

// was describes what was forgotten.
func was(st admin.Status) string {
	switch {
	case st.Sealed:
		return ", a once that had been done"
	case !st.LastTick.IsZero():
		return ", a periodic whose last tick was " + stamp(st.LastTick)
	case st.Term > 0:
		return fmt.Sprintf(", an election in term %d", st.Term)
	}
	return ""
}
