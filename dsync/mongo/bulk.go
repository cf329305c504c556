package mongo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// If many callers send short commands at the same time, they go together, in one update (a bulk): as one statement for
// many records (see together), or as statements side by side. Each change is as atomic and as conditional as in
// a command of its own, but the server executes one command, and waits for the majority once.
//
// A statement that comes alone is sent at once, in a command of its own. Up to maxAlone such commands are under way at
// a time, because for a few callers, commands side by side are quicker than bulks in turn. A statement that comes while
// there are that many, or while a bulk is under way, waits for a reply, but not for long. Then all that wait go together.
// But while a bulk is under way, half of the callers wait. So if no more than half of maxAlone wait, each goes alone. And
// when a session closes, as many wait as one bulk may have: a full bulk need not wait for a reply.
//
// The callers of a bulk often send their next statements at about the same time. So after a bulk, until a reply is to one
// statement again, none goes alone beside another command. And before each command, other goroutines run, so that it
// takes their statements, too.
const (
	maxAlone = 4

	// gatherYields is how often other goroutines run before a command. Between a reply and its next statement, a caller
	// of this library runs on several goroutines in turn.
	gatherYields = 20

	// minWait is how long a statement waits for a reply, unless replies take long (see patienceLocked). On a nearby
	// server, a bulk takes less, so usually only one is under way.
	minWait = 5 * time.Millisecond

	// All callers of a bulk wait until its last statement is executed. Besides, a command may have at most 16 MiB; a
	// statement has less than 4 KiB.
	maxStatements = 1_000
)

// bulks reports whether statements go together. A router would divide a bulk among the shards. Other servers than
// MongoDB are not known to report each statement that did not meet its conditions: see unmet.
func (v server) bulks() bool { return !v.portable && v.topology != sharded }

// MaxCalls implements [driver.Limiter]. Where statements go together, more calls than connections make larger bulks. A
// command of its own waits for a connection about as long as one reply takes.
func (s *store) MaxCalls() int {
	if s.server.bulks() {
		return 2 * maxConnections
	}
	return 0
}

// MaxReleases implements [driver.Limiter]. While the server executes one bulk, another is encoded and sent.
func (s *store) MaxReleases() int {
	if s.server.bulks() {
		return 2 * maxStatements
	}
	return 0
}

// A bulkWriter sends short commands with the same write concern.
type bulkWriter struct {
	// execute sends statements, in one command if possible, and passes the results to their callers.
	execute func(ctx context.Context, sts []*statement)

	mu      sync.Mutex
	alone   int           // commands with one statement that are under way
	bulks   int           // bulks that are under way
	last    int           // number of statements of the last command that was answered
	took    time.Duration // how long its reply took
	waiting []*statement
	overdue *time.Timer // sends these if no reply arrives soon
}

// A statement is one statement of an update, with the caller that waits for its result.
type statement struct {
	edit   shortEdit
	until  time.Time       // the caller's deadline
	result chan written    // has room for the result
	sent   *sentStatements // nil: not sent yet
}

// The type written is the result of one statement.
type written struct {
	changed bool     // the statement changed or made a record
	reply   bson.Raw // to the whole command
	err     error
}

// The type sentStatements is a command that is under way.
type sentStatements struct {
	callers int // callers that have not given up
	cancel  context.CancelFunc
}

// writeShort makes the edit with w, perhaps together with others.
func (s *store) writeShort(ctx context.Context, w *bulkWriter, edit shortEdit) written {
	ctx, cancel := limited(noValues{ctx})
	defer cancel()
	st := &statement{edit: edit, result: make(chan written, 1)}
	st.until, _ = ctx.Deadline()
	return w.send(ctx, st, s.server.bulks())
}

// send returns the result of st, or ctx's error if ctx ends first. Then only this caller gives up.
func (w *bulkWriter) send(ctx context.Context, st *statement, together bool) written {
	w.mu.Lock()
	idle := w.alone+w.bulks+len(w.waiting) == 0
	if !together || w.last <= 1 && w.alone < maxAlone && w.bulks == 0 && len(w.waiting) == 0 {
		w.alone++
		w.mu.Unlock()
		w.command(ctx, []*statement{st})
		return <-st.result
	}
	switch w.waiting = append(w.waiting, st); len(w.waiting) {
	case 1:
		w.overdue = time.AfterFunc(w.patienceLocked(), w.sendWaiting)
	case maxStatements:
		w.sendWaitingLocked()
	}
	w.mu.Unlock()
	if idle {
		letOthersRun()
		w.sendWaiting()
	}
	select {
	case r := <-st.result:
		return r
	case <-ctx.Done():
		w.giveUp(ctx, st)
		return written{err: ctx.Err()}
	}
}

// patienceLocked returns how long a statement waits for a reply. On a distant server, a statement must not wait until
// the reply to others arrives, nor if that reply is lost. On an overloaded server, where replies take long, it must not
// go soon, because bulks would then be small when they are needed most.
func (w *bulkWriter) patienceLocked() time.Duration { return max(minWait, w.took/4) }

// giveUp is called when st's caller no longer waits for the result.
func (w *bulkWriter) giveUp(ctx context.Context, st *statement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case st.sent == nil:
		w.waiting = slices.DeleteFunc(w.waiting, func(other *statement) bool { return other == st })
	case ctx.Err() == context.Canceled: // at its deadline, a command ends by itself, and its connection survives
		if st.sent.callers--; st.sent.callers == 0 {
			st.sent.cancel()
		}
	}
}

// sendWaiting sends all statements that wait.
func (w *bulkWriter) sendWaiting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendWaitingLocked()
}

func (w *bulkWriter) sendWaitingLocked() {
	if w.overdue != nil {
		w.overdue.Stop()
	}
	most := maxStatements
	if w.last <= 1 && len(w.waiting) <= maxAlone/2 {
		most = 1
	}
	for len(w.waiting) > 0 {
		n := min(most, len(w.waiting))
		w.startLocked(slices.Clone(w.waiting[:n]))
		w.waiting = w.waiting[n:]
	}
}

// startLocked sends the statements in one command. The command's context has no values. It ends when none of the
// callers waits any more.
func (w *bulkWriter) startLocked(sts []*statement) {
	w.countLocked(sts, 1)
	var until time.Time
	sent := &sentStatements{callers: len(sts)}
	for _, st := range sts {
		st.sent = sent
		if st.until.After(until) {
			until = st.until
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	sent.cancel = cancel
	go func() {
		defer cancel()
		w.command(ctx, sts)
	}()
}

// countLocked adds n to the number of commands under way.
func (w *bulkWriter) countLocked(sts []*statement, n int) {
	if len(sts) == 1 {
		w.alone += n
	} else {
		w.bulks += n
	}
}

// command sends the statements. Then it sends the statements that waited for the reply.
func (w *bulkWriter) command(ctx context.Context, sts []*statement) {
	sent := time.Now()
	w.execute(ctx, sts)
	took := time.Since(sent)
	if len(sts) > 1 {
		letOthersRun()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.took = len(sts), took
	w.countLocked(sts, -1)
	if w.bulks == 0 {
		w.sendWaitingLocked()
	}
}

// letOthersRun lets other goroutines run a few times, but not for long: in a busy program, each Gosched may take long.
func letOthersRun() {
	for began, i := time.Now(), 0; i < gatherYields && time.Since(began) < minWait; i++ {
		runtime.Gosched()
	}
}

// A writeFunc sends a command with a write concern.
type writeFunc func(ctx context.Context, cmd bson.D) (bson.Raw, error)

// sideBySide returns a function that sends a statement for each edit.
func (s *store) sideBySide(write writeFunc, statementOf func(shortEdit) bson.D) func(context.Context, []*statement) []written {
	return func(ctx context.Context, sts []*statement) []written {
		updates := make([]bson.D, len(sts))
		for i, st := range sts {
			updates[i] = statementOf(st.edit)
		}
		cmd := bson.D{e("update", s.collection), e("updates", updates)}
		if len(sts) > 1 {
			cmd = append(cmd, e("ordered", false))
		}
		reply, err := write(ctx, cmd)
		return resultsOf(len(sts), reply, err)
	}
}

// errInDoubt means that the reply to a bulk does not show whether the statement changed its record.
var errInDoubt = errors.New("the reply to an update does not show which of its statements changed a record")

// resultsOf returns the results of n statements. The reply lists the statements that failed, and those that made a
// record. Of the others it has only the number of records that were changed. Statements whose conditions are not met
// fail (see unmet), so the others should all have changed their records. If some have and some have not, such as when
// a record is missing, all of these get errInDoubt.
//
// The error of a statement is only for its own caller. An error of the whole command is for all callers. So is an error
// of its write concern, because a fail-over may then undo any of the statements.
func resultsOf(n int, reply bson.Raw, err error) []written {
	var failed mongo.WriteException
	_, counted := reply.Lookup("n").AsInt64OK()
	switch {
	case errors.As(err, &failed) && failed.WriteConcernError == nil:
		err = nil
	case failed.WriteConcernError != nil:
		err = forAll(err)
	case err == nil && !counted:
		err = fmt.Errorf("reply to update without n: %v", reply)
	}
	results := make([]written, n)
	for i := range results {
		results[i] = written{reply: reply, err: err}
	}
	for _, we := range failed.WriteErrors {
		if we.Index >= 0 && we.Index < n {
			own := failed
			own.WriteErrors = mongo.WriteErrors{we}
			results[we.Index].err = own
		}
	}
	made, _ := reply.Lookup("upserted").ArrayOK()
	records, _ := made.Values()
	for _, r := range records {
		doc, _ := r.DocumentOK()
		if i, ok := doc.Lookup("index").AsInt64OK(); ok && i >= 0 && i < int64(n) {
			results[i].changed = results[i].err == nil
		}
	}
	var others []*written
	for i := range results {
		if r := &results[i]; r.err == nil && !r.changed {
			others = append(others, r)
		}
	}
	modified, _ := reply.Lookup("nModified").AsInt64OK()
	for _, r := range others {
		switch modified {
		case int64(len(others)):
			r.changed = true
		case 0:
		default:
			r.err = errInDoubt
		}
	}
	return results
}

// forAll returns the error of a command without the errors of its statements.
func forAll(err error) error {
	var failed mongo.WriteException
	if errors.As(err, &failed) {
		failed.WriteErrors = nil
		return failed
	}
	return err
}
