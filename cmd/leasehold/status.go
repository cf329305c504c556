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
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/reading"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/leasehold-go/leasehold/leader"
	"github.com/spf13/cobra"
)

// A statusQuery selects what status shows.
type statusQuery struct {
	prefix string
	exact  bool // only the key that equals prefix
	held   bool // only keys that are held
	layout
}

// A layout describes how a command prints a list.
type layout struct {
	asJSON, wide bool
}

func newStatus(a *app) *cobra.Command {
	var q statusQuery
	var w watch
	c := &cobra.Command{
		Use:   "status [PREFIX]",
		Short: "Show the holders and waiters of keys",
		Long: `Show all keys that begin with PREFIX, or with --exact just that key: a line for each
holder and each of the first waiters. Keys in use come first, as they are read, then the
others, both in byte order. status writes nothing to the store and needs only the right
to find.

  STATE  held, leads or runs: by the process on this line; lapsed: the process has
         crashed or can't reach the server, and the next request gets the key;
         waits #1: first in the queue; done: a once that has succeeded
  FOR    how long it has been held
  LEFT   when the hold ends unless a heartbeat extends it; fixed: heartbeats do not extend it

` + tableHelp + `

At the end come possible deadlocks: what each process in them holds and waits for.

It exits with 118 if there is no such key; otherwise see "leasehold help exit-status".

` + jsonHelp,
		Example: `  leasehold status
  leasehold status invoices/
  leasehold status --exact nightly
  leasehold status --held --watch
  leasehold status --json | jq -r 'select(.held) | [.key, .holders[0].host] | @tsv'`,
		Args:              arguments(0, 1, "one PREFIX at most"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, anyKey),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.prefix = args[0]
			}
			if q.exact {
				if err := dsync.CheckKey(q.prefix); err != nil {
					return err
				}
			}
			return a.watching(cmd, w, func(ctx context.Context, a *app, v *view) error { return a.status(ctx, v, q) })
		},
	}
	c.Flags().BoolVar(&q.asJSON, "json", false, "print JSON, one line per key")
	c.Flags().BoolVar(&q.exact, "exact", false, "show only the key PREFIX, with its first 1000 waiters")
	c.Flags().BoolVar(&q.held, "held", false, "show only keys that are held")
	addViewFlags(c, &q.layout, &w)
	return c
}

// addViewFlags adds the flags of a command that shows a list.
func addViewFlags(c *cobra.Command, l *layout, w *watch) {
	c.Flags().BoolVar(&l.wide, "wide", false, "show all columns in full, even on a narrow terminal")
	c.Flags().BoolVar(&w.on, "watch", false, "refresh every --interval, until interrupted")
	c.Flags().DurationVar(&w.interval, "interval", 2*time.Second, "pause between two refreshes of --watch, at least 100ms")
}

const tableHelp = `Times are the server's, in UTC. On a terminal the table is as wide as the terminal: long
texts are cut in the middle, and columns that do not fit are left out. With --wide, in a
pipe and in a file the table has all columns in full. COLUMNS sets another width. State is shown
in colour on a terminal, unless NO_COLOR is set.`

// status prints the keys that q selects, and then the deadlocks among them.
func (a *app) status(ctx context.Context, v *view, q statusQuery) error {
	all := v.List(ctx, q.prefix)
	if q.exact {
		all = func(yield func(admin.Status, error) bool) { yield(v.Status(ctx, q.prefix)) }
	}
	var contended []admin.Status
	found := false
	each := func(yield func(admin.Status, error) bool) {
		for st, err := range all {
			if err == nil && q.held && !st.Held() {
				continue
			}
			found = found || err != nil || st.Kind != ""
			if st.Waiting > 0 {
				contended = append(contended, st)
			}
			if !yield(st, err) {
				return
			}
		}
	}
	var err error
	if q.asJSON {
		err = a.printKeysJSON(each)
	} else {
		err = a.printKeys(each, q.wide)
	}
	switch {
	case err != nil:
		return err
	case !found && q.held:
		return nothing("no such key is held")
	case !found:
		return nothing("no such key")
	case len(admin.FindDeadlocks(contended, contended)) == 0:
		return nil
	}
	return a.printDeadlocks(ctx, v, q.prefix, q.asJSON)
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
			fmt.Fprintln(a.stdout, a.display().paint(bad, "deadlock:"), d)
		}
	}
	return err
}

func (a *app) printKeysJSON(all iter.Seq2[admin.Status, error]) error {
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

// printKeys prints a table of keys. It prints the keys in use as soon as they are read, and then the others.
func (a *app) printKeys(all iter.Seq2[admin.Status, error], wide bool) error {
	d := a.display()
	if wide {
		d.width = 0
	}
	t := newTable(a.stdout, d,
		column{"KEY", 0, 20}, column{"KIND", 2, 0}, column{"STATE", 0, 0}, column{"NAME", 0, 12}, column{"HOST", 1, 12}, column{"PID", 3, 0},
		column{"FOR", 0, 0}, column{"LEFT", 0, 0}, column{"TOKEN", 5, 0}, column{"SINCE", 6, 0}, column{"VALUE", 4, 12})
	var idle [][]cell
	found := false
	for st, err := range all {
		switch {
		case err != nil:
			t.flush() // show what was read before the error
			return err
		case st.Kind == "": // the key does not exist
			continue
		}
		found = true
		for _, row := range keyRows(st) {
			if len(st.Holders) == 0 && st.Waiting == 0 {
				idle = append(idle, row)
			} else if err := t.add(row...); err != nil {
				return err
			}
		}
	}
	if !found {
		return nil // don't print the header
	}
	for _, row := range idle {
		if err := t.add(row...); err != nil {
			return err
		}
	}
	return t.flush()
}

// keyRows returns the table's lines for a key.
func keyRows(st admin.Status) (rows [][]cell) {
	row := func(looks style, state string, more ...string) {
		r := cells(append([]string{plain(st.Key), plain(string(st.Kind)), state}, more...)...)
		r[2].style = looks
		rows = append(rows, r)
	}
	for _, h := range st.Holders {
		looks := good
		if h.Lapsed {
			looks = bad
		}
		row(looks, holds(st, h), append(who(h), age(st.Now.Sub(h.Since)), left(st, h), fmt.Sprint(h.Token), stamp(h.Since), published(st))...)
	}
	if len(rows) == 0 {
		state, token := "free", none
		if st.Sealed {
			state = "done"
		}
		if st.Token != 0 {
			token = fmt.Sprint(st.Token)
		}
		row(faint, state, none, none, none, none, none, token, none, published(st))
	}
	for i, w := range st.Queue {
		row(warning, fmt.Sprintf("waits #%d%s", i+1, part(st, w)), append(who(w), none, none, none, none, none)...)
	}
	if more := st.Waiting - len(st.Queue); more > 0 {
		row(warning, fmt.Sprintf("and %d more", more), none, none, none, none, none, none, none, none)
	}
	return rows
}

// published formats the last tick of a Periodic, and the value that a leader has published or that a run has returned.
func published(st admin.Status) string {
	switch {
	case st.LastTick.IsZero():
		return short(st.Value)
	case st.Value == nil:
		return "tick " + stamp(st.LastTick)
	}
	return "tick " + stamp(st.LastTick) + ": " + short(st.Value)
}

// holds describes a holder's state.
func holds(st admin.Status, h admin.Participant) string {
	state := "held" + part(st, h)
	switch {
	case st.Kind == driver.KindElection:
		state = fmt.Sprintf("leads, term %d", st.Term)
	case st.Kind == driver.KindOnce, st.Kind == driver.KindPeriodic:
		state = "runs"
	}
	if h.Lapsed {
		state = "lapsed"
	}
	return state
}

// left describes when a hold ends.
func left(st admin.Status, h admin.Participant) string {
	left := h.Until.Sub(st.Now)
	switch {
	case h.Until.IsZero(): // the session's record does not exist
		return none
	case left <= 0:
		return age(-left) + " ago"
	case h.Renewed && !h.Lapsed:
		return age(left)
	}
	return age(left) + ", fixed"
}

// part describes how much of the key's limit the participant o uses, as a suffix for other text.
func part(st admin.Status, o admin.Participant) string {
	if use := reading.Use(st.Kind, o.Weight, st.Limit); use != "" {
		return ", " + use
	}
	return ""
}

// who returns the columns that identify a participant.
func who(o admin.Participant) []string {
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

func newMembers(a *app) *cobra.Command {
	var l layout
	var w watch
	c := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Show the live processes, or those in an election",
		Long: `Show the live processes that have a session in the store. With NAME, show those in
that election: the leader, then the candidates in FIFO order, then observers, which don't
campaign. members writes nothing to the store.

SEEN is the time since the last heartbeat. VERSION is this library's, and APP the
program's own. HEARTBEAT, POLL, MARGIN and GRACE are the options in force; a POLL that is
not set is "-".

` + tableHelp + `

With --json each line is an object with session, name, host, pid, app, meta and seen
(the last heartbeat, RFC 3339). With NAME it has role, too: leader, candidate or observer.
Without NAME it has ttl_ms, version (of this library), heartbeat_ms, poll_ms, margin_ms and
grace_ms: the options in force; no poll_ms, if that is the default.

It exits with 118 if there is nobody to show; otherwise see "leasehold help exit-status".`,
		Example: `  leasehold members
  leasehold members reports
  leasehold members --watch
  leasehold members reports --json | jq -r 'select(.role == "leader") | .host'`,
		Args:              arguments(0, 1, "one NAME at most"),
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveNoFileComp, isElection),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.watching(cmd, w, func(ctx context.Context, a *app, v *view) error {
				var all []statusjson.Member
				var now time.Time
				var err error
				if len(args) > 0 {
					all, now, err = v.election(ctx, args[0])
				} else {
					all, now, err = v.sessions(ctx)
				}
				if err != nil {
					return err
				}
				return a.printMembers(all, now, l, len(args) > 0)
			})
		},
	}
	c.Flags().BoolVar(&l.asJSON, "json", false, "print JSON, one line per process")
	addViewFlags(c, &l, &w)
	return c
}

// sessions returns the live sessions and the store's time.
func (v *view) sessions(ctx context.Context) ([]statusjson.Member, time.Time, error) {
	found, now, err := v.Members(ctx)
	var all []statusjson.Member
	for _, m := range found {
		all = append(all, statusjson.NewMember(m))
	}
	return all, now, err
}

// The roles of a process in an election, as "members NAME" shows them.
const (
	roleLeader    = "leader"
	roleCandidate = "candidate"
	roleObserver  = "observer"
)

// election returns the leader of the election, the candidates and the observers, and the store's time.
func (v *view) election(ctx context.Context, name string) ([]statusjson.Member, time.Time, error) {
	e, err := leader.New(v.session, name, nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	candidates, err := e.Candidates(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	var all []statusjson.Member
	campaigns := make(map[string]bool) // by session
	for _, c := range candidates {
		role := roleCandidate
		if c.IsLeader {
			role = roleLeader
		}
		campaigns[c.Session] = true
		all = append(all, statusjson.Member{
			Process: statusjson.Process{Session: c.Session, Name: c.Name, Host: c.Host, PID: c.PID, App: c.App, Meta: c.Meta},
			Role:    role, Seen: statusjson.Time{Time: c.Seen},
		})
	}
	observers, err := v.Observers(ctx, name)
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, o := range observers {
		if !campaigns[o.ID] {
			all = append(all, statusjson.Member{
				Process: statusjson.NewProcess(o), Role: roleObserver, Seen: statusjson.Time{Time: o.LastHeartbeat},
			})
		}
	}
	st, err := v.Status(ctx, name) // only for the store's time
	return all, st.Now, err
}

func (a *app) printMembers(all []statusjson.Member, now time.Time, l layout, roles bool) error {
	switch {
	case len(all) == 0 && roles:
		return nothing("the election has no candidates and no observers")
	case len(all) == 0:
		return nothing("no process has a session")
	}
	if l.asJSON {
		for _, m := range all {
			if err := printJSON(a.stdout, m); err != nil {
				return err
			}
		}
		return nil
	}
	d := a.display()
	if l.wide {
		d.width = 0
	}
	columns := []column{{"NAME", 0, 16}, {"HOST", 0, 12}, {"PID", 2, 0}, {"APP", 3, 12}, {"SEEN", 0, 0}}
	if roles {
		columns = append([]column{{"ROLE", 0, 0}}, columns...)
	} else {
		columns = append(columns, []column{{"TTL", 4, 0}, {"VERSION", 1, 12}, {"HEARTBEAT", 5, 0}, {"POLL", 8, 0}, {"MARGIN", 7, 0}, {"GRACE", 6, 0}}...)
	}
	t := newTable(a.stdout, d, append(columns, column{"SESSION", 9, 0}, column{"META", 10, 12})...)
	for _, m := range all {
		var meta []string
		for _, k := range slices.Sorted(maps.Keys(m.Meta)) {
			meta = append(meta, plain(k)+"="+plain(m.Meta[k]))
		}
		if len(meta) == 0 {
			meta = append(meta, none)
		}
		p := m.Process
		row := cells(append(who(admin.Participant{Session: p.Session, Name: p.Name, Host: p.Host, PID: p.PID}), plain(m.App), age(now.Sub(m.Seen.Time)))...)
		if roles {
			looks := map[string]style{roleLeader: good, roleObserver: faint}[m.Role]
			row = append([]cell{{m.Role, looks}}, row...)
		} else {
			row = append(row, cells(setting(m.TTL), plain(m.Version), setting(m.Heartbeat), setting(m.Poll), setting(m.Margin), setting(m.Grace))...)
		}
		row = append(row, cells(m.Session, strings.Join(meta, " "))...)
		if err := t.add(row...); err != nil {
			return err
		}
	}
	return t.flush()
}

// setting formats an option for a table.
func setting(d statusjson.Milliseconds) string {
	if d == 0 {
		return none
	}
	return strings.ReplaceAll(d.String(), " ", "")
}

const jsonHelp = `With --json each line is an object, one for each key, in the order of their bytes. Times
are the server's, in RFC 3339, UTC, with milliseconds; fields ending in _ms are
milliseconds. Fields may be added; none will be renamed or removed. All of this holds for
every command with --json.

  key, kind       kind is mutex, rwmutex, semaphore, once, periodic, election, or
                  "" if the store has no record of the key
  now             the time of this status
  held            the key has a holder whose lease has not run out
  sealed          whether a once is done, permanently
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
      seen, ttl_ms                its last heartbeat, and how long a heartbeat is valid
    and of a holder:
      token, since, for_ms        the grant, and the time since then
      until, left_ms              when its hold ends, and the time until then; no
                                  until if the session has no record any more
      renewed                     whether each heartbeat extends until
      lapsed                      until is in the past: the next request gets the key
      yields                      the key may be kept without being in use

After the keys there is an object for each deadlock, with its members (deadlock) and their
keys: member i holds key i and waits for the next key.
`

// newKeyJSON returns a key's status in JSON: see jsonHelp.
func newKeyJSON(st admin.Status) statusjson.Status[statusjson.Participant] {
	return statusjson.NewStatus(st, func(p admin.Participant, queued bool) statusjson.Participant {
		return statusjson.NewParticipant(p, queued, st.Now)
	})
}
