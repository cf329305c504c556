package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/leader"
	"github.com/spf13/cobra"
)

// A memberJSON is a process that has a session, for programs.
type memberJSON struct {
	processJSON
	Role leader.Role `json:"role,omitempty"`
	Seen string      `json:"seen"`
}

// manyMembers is how many of its sessions a store lists.
const manyMembers = 1000

// newMembers returns the command members.
func newMembers(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Show the processes that are alive, or the members of an election",
		Long: `Show the processes that have a session on the store and are alive, 1000 at most;
with NAME all members of the election of that name: the leader first, then the
candidates in the order in which they will lead, then observers, who don't campaign.
Times are the server's, in UTC. Nothing is written to the store.

With --json each line is an object with session, name, host, pid, app, meta, seen
(its last heartbeat, RFC 3339) and, with NAME, role: leader, candidate, observer.`,
		Example: `  leasehold members
  leasehold members reports
  leasehold members reports --json | jq -r 'select(.role == "leader") | .host'`,
		Args: arguments(0, 1, "one NAME at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, v *view) error {
				var all []memberJSON
				var err error
				if len(args) > 0 {
					all, err = v.election(ctx, args[0])
				} else {
					all, err = v.sessions(ctx)
				}
				if err != nil {
					return err
				}
				return a.printMembers(all, asJSON, len(args) > 0)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, an object per process and line")
	return c
}

// sessions are all that are alive.
func (v *view) sessions(ctx context.Context) ([]memberJSON, error) {
	found, _, err := v.Members(ctx)
	var all []memberJSON
	for _, m := range found {
		all = append(all, memberJSON{processJSON{m.ID, m.Name, m.Host, m.PID, m.App, m.Meta}, "", stamp(m.At)})
	}
	return all, err
}

// election are the members of the election, with what they are in it.
func (v *view) election(ctx context.Context, name string) ([]memberJSON, error) {
	e, err := leader.New(v.Session, name, nil)
	if err != nil {
		return nil, err
	}
	found, err := e.Members(ctx)
	var all []memberJSON
	for _, m := range found {
		all = append(all, memberJSON{processJSON{m.Session, m.Name, m.Host, m.PID, m.App, m.Meta}, m.Role, stamp(m.LastSeen)})
	}
	return all, err
}

func (a *app) printMembers(all []memberJSON, asJSON, roles bool) error {
	if len(all) == manyMembers && !roles {
		fmt.Fprintf(a.stderr, "leasehold: only the first %d members are shown\n", manyMembers)
	}
	if asJSON {
		for _, m := range all {
			if err := printJSON(a.stdout, m); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case len(all) == 0 && roles:
		fmt.Fprintln(a.stderr, "leasehold: nobody campaigns in an election of that name, or observes it; is it another --db or --collection?")
		return nil
	case len(all) == 0:
		fmt.Fprintln(a.stderr, "leasehold: no process has a session; is it another --db or --collection?")
		return nil
	}
	header := []string{"NAME", "HOST", "PID", "APP", "SESSION", "LAST HEARTBEAT", "META"}
	if roles {
		header = append([]string{"ROLE"}, header...)
	}
	t := newTable(a.stdout, header...)
	for _, m := range all {
		var meta []string
		for _, k := range slices.Sorted(maps.Keys(m.Meta)) {
			meta = append(meta, plain(k)+"="+plain(m.Meta[k]))
		}
		if len(meta) == 0 {
			meta = append(meta, none)
		}
		row := []string{plain(m.Name), plain(m.Host), fmt.Sprint(m.PID), plain(m.App), m.Session, m.Seen, strings.Join(meta, " ")}
		if roles {
			row = append([]string{string(m.Role)}, row...)
		}
		if err := t.add(row...); err != nil {
			return err
		}
	}
	return t.flush()
}
