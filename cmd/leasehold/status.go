package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

// newStatus returns the command status.
func newStatus(a *app) *cobra.Command {
	var asJSON, exact bool
	c := &cobra.Command{
		Use:   "status [PREFIX]",
		Short: "Show who holds which keys, and who waits",
		Long: `Show all keys that begin with PREFIX, in the order of their bytes, or just the one
key with --exact: a line for each holder and each of the first in line. Keys are
shown while they are read. Times are the server's, in UTC. Nothing is written to
the store, and the right to find is enough.

` + jsonHelp,
		Example: `  leasehold status
  leasehold status invoices/
  leasehold status --exact nightly
  leasehold status --json | jq -r 'select(.held) | [.key, .holders[0].host] | @tsv'`,
		Args: arguments(0, 1, "one PREFIX at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			if exact {
				if err := dsync.CheckKey(prefix); err != nil {
					return err
				}
			}
			return a.look(cmd.Context(), func(ctx context.Context, v *view) error {
				all := v.List(ctx, prefix)
				if exact {
					all = func(yield func(dsync.Status, error) bool) { yield(v.Status(ctx, prefix)) }
				}
				if asJSON {
					return a.printKeysJSON(all)
				}
				return a.printKeys(all)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, an object per key and line")
	c.Flags().BoolVar(&exact, "exact", false, "show the key PREFIX, with the first 1000 in its line")
	return c
}

func (a *app) printKeysJSON(all iter.Seq2[dsync.Status, error]) error {
	for st, err := range all {
		if err != nil {
			return err
		}
		if err := printJSON(a.stdout, newKeyJSON(st)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printKeys(all iter.Seq2[dsync.Status, error]) error {
	t := newTable(a.stdout, "KEY", "KIND", "STATE", "NAME", "HOST", "PID", "TOKEN", "SINCE", "UNTIL", "VALUE")
	n := 0
	for st, err := range all {
		if err != nil {
			t.flush() // what was read before
			return err
		}
		n++
		for _, row := range keyRows(st) {
			if err := t.add(row...); err != nil {
				return err
			}
		}
	}
	if n == 0 {
		fmt.Fprintln(a.stderr, "leasehold: no such key; is it another --db or --collection?")
		return nil
	}
	return t.flush()
}

// keyRows are the lines of a key.
func keyRows(st dsync.Status) (rows [][]string) {
	kind, value := plain(string(st.Kind)), short(st.Value)
	for _, h := range st.Holders {
		token := fmt.Sprint(h.Token)
		since := fmt.Sprintf("%s (%s ago)", stamp(h.Since), span(st.Now.Sub(h.Since)))
		rows = append(rows, append([]string{plain(st.Key), kind, holds(st, h)}, append(who(h), token, since, until(st, h), value)...))
	}
	if len(rows) == 0 {
		state, token := "free", none
		if st.Sealed {
			state = "done"
		}
		if st.Token != 0 {
			token = fmt.Sprint(st.Token)
		}
		rows = append(rows, []string{plain(st.Key), kind, state, none, none, none, token, none, none, value})
	}
	for i, w := range st.Line {
		state := fmt.Sprintf("waits #%d%s", i+1, part(st, w))
		rows = append(rows, append([]string{plain(st.Key), kind, state}, append(who(w), none, none, none, none)...))
	}
	if more := st.Waiting - len(st.Line); more > 0 {
		rows = append(rows, []string{plain(st.Key), kind, fmt.Sprintf("and %d more", more), none, none, none, none, none, none, none})
	}
	return rows
}

// holds says what a holder does with the key.
func holds(st dsync.Status, h dsync.Owner) string {
	state := "held" + part(st, h)
	switch {
	case st.Kind == dsync.KindElection:
		state = fmt.Sprintf("leads, term %d", st.Term)
	case st.Kind == dsync.KindOnce:
		state = "runs"
	}
	if h.Lapsed {
		state = "lapsed"
	}
	return state
}

// part is st.Use(o) after something else.
func part(st dsync.Status, o dsync.Owner) string {
	if use := st.Use(o); use != "" {
		return ", " + use
	}
	return ""
}

// until says when a hold ends.
func until(st dsync.Status, h dsync.Owner) string {
	left := h.Until.Sub(st.Now)
	switch {
	case h.Until.IsZero(): // its session's record is gone
		return none
	case left <= 0:
		return fmt.Sprintf("%s (%s ago)", stamp(h.Until), span(-left))
	case h.Renewed && !h.Lapsed:
		return fmt.Sprintf("%s (in %s, unless renewed)", stamp(h.Until), span(left))
	}
	return fmt.Sprintf("%s (in %s)", stamp(h.Until), span(left))
}

// who are the columns that say who an owner is.
func who(o dsync.Owner) []string {
	pid := none
	if o.PID != 0 {
		pid = fmt.Sprint(o.PID)
	}
	name := plain(o.Name)
	if o.Name == "" {
		name = plain(o.Session)
	}
	return []string{name, plain(o.Host), pid}
}
