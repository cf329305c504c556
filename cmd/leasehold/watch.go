package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"github.com/spf13/cobra"
)

// newWatch returns the watch command.
func newWatch(a *app) *cobra.Command {
	var asJSON, exact bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "watch [PREFIX…]",
		Short: "Show what happens to keys, as it happens",
		Long: `Show what happens to all keys that begin with a PREFIX, or with --exact only to the
named keys, until interrupted: first the current holders, then a line for each change.
Times are the server's, in UTC: for a grant, the time when it was made, else the time
when the change was seen. Nothing is written to the store, and the right to find is
enough.

All keys are read every --interval. Changes that are undone between two readings are
not shown.

  held       somebody held the key when the watch began
  granted    somebody holds the key; the time is that of the grant
  ended      somebody no longer holds the key: released, broken, or expired
  lapsed     a holder's time has run out; the next request gets the key
  revived    a holder that had lapsed goes on, since nobody requested the key
  queue      the number of waiters has changed
  published  a leader has published a value
  done       a once is done, permanently
  resized    a semaphore has another size

With --json each line is an object with at, key, kind, change (one of these), limit,
term, waiting, value or value_base64, and, if it concerns one, holder, with the fields
of a holder in "leasehold status --json".`,
		Example: `  leasehold watch
  leasehold watch invoices/ reports/
  leasehold watch --json --exact nightly`,
		ValidArgsFunction: a.completeKeys(math.MaxInt, cobra.ShellCompDirectiveNoFileComp, anyKey),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 10*time.Millisecond {
				return usagef("--interval is %v; it must be at least 10ms", every)
			}
			if exact && len(args) == 0 {
				return usagef("--exact needs one or more keys")
			}
			for _, key := range args {
				if err := dsync.CheckKey(key); err != nil {
					return err
				}
			}
			if len(args) == 0 {
				args = []string{""}
			}
			return a.view(cmd.Context(), func(ctx context.Context, v *view) error {
				w := watcher{a: a, view: v, names: args, exact: exact, known: make(map[string]*dsync.Status)}
				w.show = func(c change) error {
					if asJSON {
						return printJSON(a.stdout, newChangeJSON(c))
					}
					_, err := fmt.Fprintln(a.stdout, c)
					return err
				}
				return w.run(ctx, every)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line per change")
	c.Flags().BoolVar(&exact, "exact", false, "watch only the named keys, not all that begin with the names")
	c.Flags().DurationVar(&every, "interval", time.Second, "how often to read all keys")
	return c
}

// A watcher shows the changes of keys.
type watcher struct {
	*view
	a      *app
	names  []string // keys if exact, else prefixes of keys
	exact  bool
	show   func(change) error
	known  map[string]*dsync.Status // by key, as last read
	begun  bool                     // all keys were read once: a key that is new now was created since
	failed bool                     // the last reading failed, and a message said so
}

// A shownError is an error of writing to standard output.
type shownError struct{ error }

// run reads all keys at an interval.
func (w *watcher) run(ctx context.Context, every time.Duration) error {
	if err := w.readAll(ctx); err != nil {
		return err
	}
	w.begun = true
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := w.tolerate(w.readAll(ctx)); err != nil {
				return err
			}
		}
	}
}

// tolerate returns err if trying again can't help. Else it prints err, if the reading
// before did not fail, too.
func (w *watcher) tolerate(err error) error {
	if errors.As(err, new(shownError)) || errors.Is(err, dsync.ErrRefused) || errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil && !w.failed {
		w.a.say(fmt.Errorf("no answer, still trying: %w", err))
	}
	w.failed = err != nil
	return nil
}

// readAll reads all keys and shows their changes.
func (w *watcher) readAll(ctx context.Context) error {
	for _, name := range w.names {
		if w.exact {
			st, err := w.Status(ctx, name)
			if err == nil {
				err = w.read(st)
			}
			if err != nil {
				return err
			}
			continue
		}
		for st, err := range w.List(ctx, name) {
			if err == nil {
				err = w.read(st)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// read shows the changes of a key.
func (w *watcher) read(st dsync.Status) error {
	before := w.known[st.Key]
	if before == nil && w.begun {
		before = &dsync.Status{}
	}
	for _, c := range changes(before, st) {
		if err := w.show(c); err != nil {
			return shownError{err}
		}
	}
	w.known[st.Key] = &st
	return nil
}

// A change is one change of a key.
type change struct {
	at     time.Time // of a grant, or when the change was seen; the server's clock
	what   string
	st     dsync.Status       // as it is now
	holder *dsync.Participant // nil if it concerns no holder in particular
}

// The kinds of changes.
const (
	changeHeld      = "held"      // when the watch began
	changeGranted   = "granted"   // somebody holds it now
	changeLapsed    = "lapsed"    // a holder's time has run out, and nobody has requested the key since
	changeRevived   = "revived"   // a holder that had lapsed has sent a heartbeat
	changeEnded     = "ended"     // somebody no longer holds it
	changeQueue     = "queue"     // the number of waiters has changed
	changePublished = "published" // another value
	changeSealed    = "done"      // a once is done, permanently
	changeResized   = "resized"   // another limit
)

// changes returns the changes of a key between two readings; if before is nil, the
// current state as changes.
func changes(before *dsync.Status, st dsync.Status) (all []change) {
	add := func(what string, at time.Time, o *dsync.Participant) {
		all = append(all, change{at, what, st, o})
	}
	var was dsync.Status
	if before != nil {
		was = *before
	}
	now := make(map[string]bool)
	for _, h := range st.Holders {
		now[h.Claim] = true
	}
	held := make(map[string]dsync.Participant)
	for _, h := range was.Holders {
		held[h.Claim] = h
		if !now[h.Claim] {
			add(changeEnded, st.Now, &h)
		}
	}
	for _, h := range st.Holders {
		old, ok := held[h.Claim]
		switch {
		case before == nil:
			add(changeHeld, st.Now, &h)
		case !ok:
			add(changeGranted, h.Since, &h)
		}
		switch {
		case h.Lapsed && !old.Lapsed:
			add(changeLapsed, st.Now, &h)
		case old.Lapsed && !h.Lapsed:
			add(changeRevived, st.Now, &h)
		}
	}
	if st.Waiting != was.Waiting {
		add(changeQueue, st.Now, nil)
	}
	if st.Sealed && !was.Sealed {
		add(changeSealed, st.Now, nil)
	} else if string(st.Value) != string(was.Value) && st.Value != nil {
		add(changePublished, st.Now, nil)
	}
	if was.Limit != 0 && st.Limit != was.Limit && st.Kind == was.Kind {
		add(changeResized, st.Now, nil)
	}
	return all
}

// String is the change for people, in one line.
func (c change) String() string {
	text := fmt.Sprintf("%s  %s  %s", stamp(c.at), plain(c.st.Key), c.what)
	switch c.what {
	case changeQueue:
		return fmt.Sprintf("%s: %d waiting", text, c.st.Waiting)
	case changePublished, changeSealed:
		return fmt.Sprintf("%s: %s", text, short(c.st.Value))
	case changeResized:
		return fmt.Sprintf("%s: to %d", text, c.st.Limit)
	}
	o := who(*c.holder)
	text += fmt.Sprintf("%s: %s on %s, process %s, token %d", part(c.st, *c.holder), o[0], o[1], o[2], c.holder.Token)
	if c.what == changeHeld {
		text += ", since " + stamp(c.holder.Since)
	}
	return text
}

// A changeJSON is a change for programs: see watch's help.
type changeJSON struct {
	At      statusjson.Time `json:"at"`
	Key     string          `json:"key"`
	Kind    dsync.Kind      `json:"kind"`
	Change  string          `json:"change"`
	Limit   int64           `json:"limit"`
	Term    int64           `json:"term"`
	Waiting int             `json:"waiting"`
	statusjson.Value
	Holder *statusjson.Participant `json:"holder,omitempty"`
}

func newChangeJSON(c change) changeJSON {
	j := changeJSON{
		At: statusjson.Time{Time: c.at}, Key: c.st.Key, Kind: c.st.Kind, Change: c.what,
		Limit: c.st.Limit, Term: c.st.Term, Waiting: c.st.Waiting, Value: statusjson.NewValue(c.st.Value),
	}
	if c.holder != nil {
		p := statusjson.NewParticipant(*c.holder, false, c.st.Now)
		j.Holder = &p
	}
	return j
}
