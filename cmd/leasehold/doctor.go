package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the server, the rights and the connection string",
		Long: `Check whether locks work on this server, with this connection string, and how fast: before
the first lock, and when something is wrong. Each check prints one line:

  ok    nothing must be done
  warn  locks work, but slower, or with less room for faults, than they could
  fail  locks do not work or are not safe until somebody does what the line says

The checks are

  server   its version and topology, and whether this project's tests have run on it
  rights   of the user, on the collection and on those of notices
  probe    the server computes the library's commands as MongoDB does
  writes   a majority and the journal confirm a write
  clocks   this host's against the servers', and theirs against each other
  notices  whether waiters are notified, or poll
  pool     the connections and time-outs of the connection string, beside those advised
  records  processes without heartbeats, lapsed holds, deadlocks
  latency  of Lock and Unlock, and of a hand-off to another process, beside two plain
           majority writes
  left     what the checks have written and removed

doctor writes what a session and its probe write, to the collection and to
COLLECTION.notices.1, and removes its records. Each check takes at most --connect-timeout.
If the server does not answer the first, there are no others.

With --json each line is an object with check, outcome (ok, warn or fail) and found;
do, if something should be done; and values, with what was measured. The output contains
names of hosts, of the database and perhaps of its user, but no password.

It exits with 0 if no check fails, and with 119 if one does; with 115 or 116 if the
server does not answer, or refuses; otherwise see "leasehold help exit-status".`,
		Example: `  leasehold doctor
  leasehold doctor --json | jq -r 'select(.outcome != "ok") | .do'`,
		Args: arguments(0, 0, "flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOptions(dsync.Options{TTL: a.target.ttl, Name: a.target.name}); err != nil {
				return err
			}
			return untilSignal(cmd.Context(), func(ctx context.Context) error {
				return a.withDatabase(ctx, func(t target, db *mongo.Database) error {
					if err := t.forLocks(); err != nil {
						return err
					}
					return a.doctor(ctx, newExam(t, db), asJSON)
				})
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line per check")
	return c
}

// A finding is the result of a check. Its JSON is the output of doctor --json: see the command's help.
type finding struct {
	Check   string         `json:"check"`
	Outcome level          `json:"outcome"`
	Found   string         `json:"found"`
	Do      string         `json:"do,omitempty"`
	Values  map[string]any `json:"values,omitempty"`

	err error // of a check that could not be made
}

// A level says how bad a finding is.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

var levelStyles = map[level]style{levelOK: good, levelWarn: warning, levelFail: bad}

// found returns a finding that asks for nothing.
func found(format string, args ...any) finding {
	return finding{Outcome: levelOK, Found: fmt.Sprintf(format, args...)}
}

// advise returns f with a level other than ok, and what to do.
func (f finding) advise(l level, format string, args ...any) finding {
	f.Outcome, f.Do = l, fmt.Sprintf(format, args...)
	return f
}

// with returns f with a value for JSON.
func (f finding) with(name string, value any) finding {
	if f.Values == nil {
		f.Values = make(map[string]any)
	}
	f.Values[name] = value
	return f
}

// An exam is one run of the checks.
type exam struct {
	target target
	db     *mongo.Database
	id     string       // identifies this run's records
	wrote  []string     // the _id of each record that this run may have written
	store  driver.Store // nil unless the probe has passed
	log    *lastWarning // of store

	hello     mongoclient.Hello
	before    []string // the library's collections at the beginning
	noJournal bool

	// session opens a session of its own, as another process would have. view opens a store that only reads.
	session func(context.Context) (*dsync.Session, error)
	view    func(context.Context) (driver.Store, error)
}

func newExam(t target, db *mongo.Database) *exam {
	e := &exam{target: t, db: db, id: bson.NewObjectID().Hex(), log: new(lastWarning)}
	e.session = func(ctx context.Context) (*dsync.Session, error) {
		return dsyncmongo.Connect(ctx, t.options(), t.db, &dsyncmongo.Options{
			Collection: t.collection, NoticeCollections: 1,
			Session: dsync.Options{
				TTL: t.ttl, Name: t.name, App: "leasehold doctor", AlwaysListen: true,
				Retention: -1, // or it might sweep other records
				Logger:    slog.New(slog.DiscardHandler),
			},
		})
	}
	e.view = func(ctx context.Context) (driver.Store, error) {
		return dsyncmongo.NewStore(ctx, db, &dsyncmongo.Options{Collection: t.collection, ReadOnly: true})
	}
	return e
}

// A check is one line of the doctor's output.
type check struct {
	name string
	run  func(context.Context) finding
}

// The names of the first check, without which there are no others, and of the last, which is never left out.
const (
	checkServer = "server"
	checkLeft   = "left"
)

func (e *exam) checks() []check {
	return []check{
		{checkServer, e.checkServer}, {"rights", e.checkRights}, {"probe", e.checkProbe}, {"writes", e.checkWrites},
		{"clocks", e.checkClocks}, {"notices", e.checkNotices}, {"pool", e.checkPool}, {"records", e.checkRecords},
		{"latency", e.checkLatency}, {checkLeft, e.checkLeft},
	}
}

// cleanUpTime bounds the clean-up after an interrupt.
const cleanUpTime = 2 * time.Second

// doctor makes all checks and prints their findings. If ctx ends, it only cleans up.
func (a *app) doctor(ctx context.Context, e *exam, asJSON bool) error {
	var failed []string
	for _, c := range e.checks() {
		within, limit := ctx, e.target.timeout
		switch {
		case ctx.Err() == nil:
		case c.name == checkLeft && len(e.wrote) > 0:
			within, limit = context.WithoutCancel(ctx), min(limit, cleanUpTime)
		default:
			continue
		}
		within, cancel := context.WithTimeout(within, limit)
		f := c.run(within)
		cancel()
		if ctx.Err() != nil && c.name != checkLeft {
			continue // an interrupted check has found nothing
		}
		if f.Check = c.name; f.Outcome == levelFail {
			failed = append(failed, c.name)
		}
		if err := a.printFinding(f, asJSON); err != nil {
			return err
		}
		if f.err != nil && c.name == checkServer {
			return e.target.unreached(f.err)
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(failed) > 0:
		return &failure{exitDoctor, fmt.Errorf("the checks failed: %s; do what their lines say", strings.Join(failed, ", "))}
	}
	return nil
}

func (a *app) printFinding(f finding, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, f)
	}
	text := f.Found
	if f.Do != "" {
		text += "; do: " + f.Do
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-7s  %s\n", a.display().paint(levelStyles[f.Outcome], fmt.Sprintf("%-4s", f.Outcome)), f.Check, text)
	return err
}

// longestError is the length to which errors are cut. Some of the server's quote the whole command.
const longestError = 300

// failed returns the finding of a check that could not be made.
func (e *exam) failed(err error) finding {
	f := finding{Found: cutMiddle(oneLine(e.target.unreached(err)), longestError), err: err}
	switch {
	case unauthorized(err):
		return f.advise(levelFail, "grant what the check rights names")
	case timedOut(err) && !errors.As(err, new(topology.ServerSelectionError)):
		f.Found = fmt.Sprintf("the server has not answered within %v", e.target.timeout)
		return f.advise(levelFail, "look at the server and the network, or raise --connect-timeout")
	}
	return f.advise(levelFail, "see Troubleshooting in docs/runbook.md")
}

func timedOut(err error) bool {
	return mongo.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)
}

// unauthorized reports whether the server refused a command because a right is missing.
func unauthorized(err error) bool {
	var refusal mongo.ServerError
	return errors.As(err, &refusal) && refusal.HasErrorCode(13)
}

// untried returns the finding of a check that needs what the named check has not found.
func untried(name string) finding {
	return found("not tried").advise(levelFail, "mend what the check %q names", name)
}

// command sends a command, and decodes the reply into v unless v is nil.
func (e *exam) command(ctx context.Context, db string, cmd bson.D, v any) error {
	raw, err := e.db.Client().Database(db).RunCommand(ctx, cmd).Raw()
	if err != nil || v == nil {
		return err
	}
	return bson.Unmarshal(raw, v)
}

// namespace returns the full name of a collection: the one for locks, with a suffix.
func (e *exam) namespace(suffix string) string {
	return e.target.db + "." + e.target.collection + suffix
}

// A lastWarning is a slog.Handler that keeps the text of the last warning.
type lastWarning struct{ text string }

func (w *lastWarning) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *lastWarning) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *lastWarning) WithGroup(string) slog.Handler                { return w }

func (w *lastWarning) Handle(_ context.Context, r slog.Record) error {
	w.text = strings.TrimPrefix(r.Message, "leasehold: ")
	return nil
}
