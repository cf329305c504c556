package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

// newWatch returns the command watch.
func newWatch(a *app) *cobra.Command {
	var asJSON, exact bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "watch [PREFIX…]",
		Short: "Show what happens to keys, as it happens",
		Long: `Show what happens to all keys that begin with a PREFIX, or with --exact to just the
keys that are named, until it is interrupted: a line for each change, with the
server's time in UTC: of a grant when it was made, else when it was seen. At first it
says how things are. Nothing is written to the store, and the rights to find and,
where the server has change streams, to changeStream are enough.

All keys are read every --interval. Where the server has change streams, what
happens to a key that was read once is shown at once; else what comes and goes
between two readings is not seen.

  held       somebody held it when the watch began
  granted    somebody holds it; the time is that of the grant
  ended      somebody does not hold it any more: released, broken, or dropped
  lapsed     a holder's time is over; whoever asks next gets the key
  revived    a holder that had lapsed goes on, since nobody asked
  line       another number waits
  published  a leader has published a value
  done       a once is done, for ever
  resized    a semaphore has another size

With --json each line is an object with at, key, kind, change (one of these), limit,
term, waiting, value or value_base64, and owner, if it concerns one, with the fields
of a holder in "leasehold status --json".`,
		Example: `  leasehold watch
  leasehold watch invoices/ reports/
  leasehold watch --json --exact nightly`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 10*time.Millisecond {
				return usagef("--interval is %v; it must be at least 10ms", every)
			}
			if exact && len(args) == 0 {
				return usagef("--exact names no key; give one or more")
			}
			for _, key := range args {
				if err := dsync.CheckKey(key); err != nil {
					return err
				}
			}
			if len(args) == 0 {
				args = []string{""}
			}
			return a.look(cmd.Context(), func(ctx context.Context, v *view) error {
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
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, an object per change and line")
	c.Flags().BoolVar(&exact, "exact", false, "watch the keys that are named, not all that begin so")
	c.Flags().DurationVar(&every, "interval", time.Second, "how often all keys are read")
	return c
}

// A watcher shows what becomes of keys.
type watcher struct {
	*view
	a     *app
	names []string // of keys, or what they begin with
	exact bool
	show  func(change) error
	known map[string]*dsync.Status // by key, as last read
	begun bool                     // all keys were read once: what is new now has come since
	mute  bool                     // the last reading failed, which was said
}

// A shownError is one of writing to the standard output.
type shownError struct{ error }

// run reads all keys every so often, and each as soon as the server says that it
// has changed.
func (w *watcher) run(ctx context.Context, every time.Duration) error {
	if err := w.readAll(ctx); err != nil {
		return err
	}
	w.begun = true
	push := newPush(w.store)
	defer push.stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	push.follow(ctx, w.keys())
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case key := <-push.changed:
			var st dsync.Status
			if st, err = w.Status(ctx, key); err == nil {
				err = w.read(st)
			}
		case <-push.ready:
			err = w.readAll(ctx)
		case <-tick.C:
			err = w.readAll(ctx)
			push.follow(ctx, w.keys())
		}
		if err := w.bear(err); err != nil {
			return err
		}
	}
}

// bear says, once, that there is no answer. What can't be mended by waiting it
// returns.
func (w *watcher) bear(err error) error {
	if errors.As(err, new(shownError)) || errors.Is(err, dsync.ErrRefused) || errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil && !w.mute {
		w.a.say(fmt.Errorf("no answer, still trying: %w", err))
	}
	w.mute = err != nil
	return nil
}

// keys are those to be told of.
func (w *watcher) keys() []string {
	if w.exact {
		return w.names
	}
	keys := make([]string, 0, len(w.known))
	for key := range w.known {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// readAll reads all keys and shows what became of them.
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

// read shows what became of a key.
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
