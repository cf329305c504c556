package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/leasehold-go/leasehold/leader"
	"github.com/spf13/cobra"
)

// newStatus returns the status command.
func newStatus(a *app) *cobra.Command {
	var asJSON, exact bool
	c := &cobra.Command{
		Use:   "status [PREFIX]",
		Short: "Show the holders and waiters of keys",
		Long: `Show all keys that begin with PREFIX, in the order of their bytes, or with --exact
just that key: a line for each holder and each of the first waiters. Keys are shown
while they are read. Times are the server's, in UTC. Nothing is written to the
store, and the right to find is enough.

At the end come possible deadlocks: what each process in them holds and waits for.

It exits with 118 if there is no such key; otherwise see "leasehold help exit-status".

` + jsonHelp,
		Example: `  leasehold status
  leasehold status invoices/
  leasehold status --exact nightly
  watch -n1 leasehold status invoices/    # again every second
  leasehold status --json | jq -r 'select(.held) | [.key, .holders[0].host] | @tsv'`,
		Args:              arguments(0, 1, "one PREFIX at most"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, anyKey),
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
			return a.view(cmd.Context(), func(ctx context.Context, v *view) error {
				all := v.List(ctx, prefix)
				if exact {
					all = func(yield func(dsync.Status, error) bool) { yield(v.Status(ctx, prefix)) }
				}
				var contended []dsync.Status
				found := false
				each := func(yield func(dsync.Status, error) bool) {
					for st, err := range all {
						found = found || err != nil || st.Kind != ""
						if st.Waiting > 0 {
							contended = append(contended, st)
						}
						if !yield(st, err) {
							return
						}
					}
				}
				show := a.printKeys
				if asJSON {
					show = a.printKeysJSON
				}
				switch err := show(each); {
				case err != nil:
					return err
				case !found:
					return nothing("no such key")
				case len(dsync.FindDeadlocks(contended, contended)) == 0:
					return nil
				}
				return a.printDeadlocks(ctx, v, prefix, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line per key")
	c.Flags().BoolVar(&exact, "exact", false, "show only the key PREFIX, with its first 1000 waiters")
	return c
}

// printDeadlocks prints the deadlocks among the keys that begin with prefix.
func (a *app) printDeadlocks(ctx context.Context, v *view, prefix string, asJSON bool) error {
	found, err := v.Deadlocks(ctx, prefix)
	for _, d := range found {
		var members []statusjson.Process
		for i, m := range d.Members {
			members = append(members, statusjson.NewParticipant(m, true, time.Time{}).Process)
			d.Members[i].Name, d.Members[i].Host = plain(cmp.Or(m.Name, m.Session)), plain(m.Host)
		}
		if asJSON {
			err = cmp.Or(err, printJSON(a.stdout, map[string]any{"deadlock": members, "keys": d.Keys}))
		} else {
			fmt.Fprintln(a.stdout, "deadlock:", d)
		}
	}
	return err
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
	found := false
	for st, err := range all {
		switch {
		case err != nil:
			t.flush() // what was read before
			return err
		case st.Kind == "": // there is no such key
			continue
		}
		found = true
		for _, row := range keyRows(st) {
			if err := t.add(row...); err != nil {
				return err
			}
		}
	}
	if !found {
		return nil // not even the header
	}
	return t.flush()
}

// keyRows returns the lines about a key.
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
		if !st.LastTick.IsZero() {
			state += ", last tick " + stamp(st.LastTick)
		}
		if st.Token != 0 {
			token = fmt.Sprint(st.Token)
		}
		rows = append(rows, []string{plain(st.Key), kind, state, none, none, none, token, none, none, value})
	}
	for i, w := range st.Queue {
		state := fmt.Sprintf("waits #%d%s", i+1, part(st, w))
		rows = append(rows, append([]string{plain(st.Key), kind, state}, append(who(w), none, none, none, none)...))
	}
	if more := st.Waiting - len(st.Queue); more > 0 {
		rows = append(rows, []string{plain(st.Key), kind, fmt.Sprintf("and %d more", more), none, none, none, none, none, none, none})
	}
	return rows
}

// holds describes a holder's state.
func holds(st dsync.Status, h dsync.Participant) string {
	state := "held" + part(st, h)
	switch {
	case st.Kind == dsync.KindElection:
		state = fmt.Sprintf("leads, term %d", st.Term)
	case st.Kind == dsync.KindOnce, st.Kind == dsync.KindPeriodic:
		state = "runs"
	}
	if h.Lapsed {
		state = "lapsed"
	}
	return state
}

// part says what o has of the key, as an addition to other text.
func part(st dsync.Status, o dsync.Participant) string {
	if use := engine.Use(st.Kind, o.Weight, st.Limit); use != "" {
		return ", " + use
	}
	return ""
}

// until describes when a hold ends.
func until(st dsync.Status, h dsync.Participant) string {
	left := h.Until.Sub(st.Now)
	switch {
	case h.Until.IsZero(): // its session's record was deleted
		return none
	case left <= 0:
		return fmt.Sprintf("%s (%s ago)", stamp(h.Until), span(-left))
	case h.Renewed && !h.Lapsed:
		return fmt.Sprintf("%s (in %s, unless renewed)", stamp(h.Until), span(left))
	}
	return fmt.Sprintf("%s (in %s)", stamp(h.Until), span(left))
}

// who returns the columns that identify a participant.
func who(o dsync.Participant) []string {
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

// newMembers returns the members command.
func newMembers(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Show the processes that are alive, or the members of an election",
		Long: `Show the processes that are alive and have a session in the store.
With NAME, show all members of that election: the leader first, then the candidates
in the order in which they will lead, then observers, who don't campaign.
Times are the server's, in UTC. Nothing is written to the store.

With --json each line is an object with session, name, host, pid, app, meta and seen
(the last heartbeat, RFC 3339). With NAME it has role, too: leader, candidate or observer.
Without NAME it has ttl_ms, version (of this library), heartbeat_ms, poll_ms, margin_ms and
grace_ms: the options in force; no poll_ms, if that is the default.

It exits with 118 if there is nobody to show; otherwise see "leasehold help exit-status".`,
		Example: `  leasehold members
  leasehold members reports
  leasehold members reports --json | jq -r 'select(.role == "leader") | .host'`,
		Args:              arguments(0, 1, "one NAME at most"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, isElection),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.view(cmd.Context(), func(ctx context.Context, v *view) error {
				var all []statusjson.Member
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
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line per process")
	return c
}

// sessions returns the sessions that are alive.
func (v *view) sessions(ctx context.Context) ([]statusjson.Member, error) {
	found, _, err := v.Members(ctx)
	var all []statusjson.Member
	for _, m := range found {
		all = append(all, statusjson.NewMember(m))
	}
	return all, err
}

// election returns the members of the election, with their roles.
func (v *view) election(ctx context.Context, name string) ([]statusjson.Member, error) {
	e, err := leader.New(v.Session, name, nil)
	if err != nil {
		return nil, err
	}
	found, err := e.Members(ctx)
	var all []statusjson.Member
	for _, m := range found {
		all = append(all, statusjson.Member{
			Process: statusjson.Process{Session: m.Session, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta},
			Role:    string(m.Role), Seen: statusjson.Time{Time: m.LastSeen},
		})
	}
	return all, err
}

func (a *app) printMembers(all []statusjson.Member, asJSON, roles bool) error {
	switch {
	case len(all) == 0 && roles:
		return nothing("nobody campaigns in an election of that name, or observes it")
	case len(all) == 0:
		return nothing("no process has a session")
	}
	if asJSON {
		for _, m := range all {
			if err := printJSON(a.stdout, m); err != nil {
				return err
			}
		}
		return nil
	}
	header := []string{"NAME", "HOST", "PID", "APP", "SESSION", "LAST HEARTBEAT"}
	if roles {
		header = append([]string{"ROLE"}, header...)
	} else {
		header = append(header, "TTL", "OPTIONS", "VERSION")
	}
	header = append(header, "META")
	t := newTable(a.stdout, header...)
	for _, m := range all {
		var meta []string
		for _, k := range slices.Sorted(maps.Keys(m.Meta)) {
			meta = append(meta, plain(k)+"="+plain(m.Meta[k]))
		}
		if len(meta) == 0 {
			meta = append(meta, none)
		}
		row := []string{plain(m.Name), plain(m.Host), fmt.Sprint(m.PID), plain(m.App), m.Session, m.Seen.String()}
		if roles {
			row = append([]string{m.Role}, row...)
		} else {
			row = append(row, m.TTL.String(), cmp.Or(m.Options(), none), plain(m.Version))
		}
		row = append(row, strings.Join(meta, " "))
		if err := t.add(row...); err != nil {
			return err
		}
	}
	return t.flush()
}

const jsonHelp = `With --json each line is an object. Times are the server's, in RFC 3339, UTC, with
milliseconds; fields ending in _ms are milliseconds. Fields may be added; none will
be renamed or removed.

  key, kind       kind is mutex, rwmutex, semaphore, once, periodic, election, or
                  "" if the store has no record of the key
  now             the time of this status
  held            somebody holds the key, and their time has not run out
  sealed          a once that is done, permanently
  last_tick       of a periodic: the last tick that succeeded; missing if none has
  limit           the total weight of holders: 1 for a mutex, a semaphore's size
  token           the latest fencing token, 0 if there was none
  term            of an election: the number of terms so far
  value           the value that a leader published or a run returned, if it is UTF-8, or
  value_base64    if it is not; neither if there is none
  waiting         the number of waiters
  holders, queue  the holders, and the first 8 waiters (1000 with --exact), in order:
      claim, session, weight      ids in the store; the part of limit that it uses
      name, host, pid, app, meta  what the process says about itself
      seen, ttl_ms                its last heartbeat, and how long that counts
    and of a holder:
      token, since, for_ms        the grant, and the time since then
      until, left_ms              when its hold ends, and the time until then; no
                                  until if its session's record is gone
      renewed                     until moves on with each heartbeat
      lapsed                      until has passed: the next request gets the key
      yields                      it may be kept without being in use

After the keys there is an object for each deadlock, with its members (deadlock) and their
keys: each member holds the key at its place, and waits for the next one.
`

// newKeyJSON returns a key's status for programs: see jsonHelp.
func newKeyJSON(st dsync.Status) statusjson.Status[statusjson.Participant] {
	return statusjson.NewStatus(st, func(p dsync.Participant, queued bool) statusjson.Participant {
		return statusjson.NewParticipant(p, queued, st.Now)
	})
}
