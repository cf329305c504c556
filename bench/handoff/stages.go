package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// stages are the stages of a hand-off in order, followed by a raw write for comparison.
var stages = []string{
	"from the call of Unlock until its command is sent",
	"until the reply",
	"until the notice is sent",
	"until the next session receives the notice",
	"until Lock returns",
	"a raw majority write",
}

// A watch records when a session's commands are sent and answered.
type watch struct {
	mu               sync.Mutex
	sent, answered   time.Time // when the last release was sent and answered
	noticed          time.Time // when the last notice was sent
	heard            time.Time // when the listener's last reply came
	release, listens map[int64]bool
}

func newWatch() *watch { return &watch{release: make(map[int64]bool), listens: make(map[int64]bool)} }

func (w *watch) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			now := time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			on, _ := e.Command.Lookup(e.CommandName).StringValueOK()
			switch {
			case e.CommandName == "findAndModify":
				w.sent, w.release[e.RequestID] = now, true
			case e.CommandName == "insert" && strings.Contains(on, ".notices."):
				w.noticed = now
			case e.CommandName == "getMore":
				w.listens[e.RequestID] = true
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			now := time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case w.release[e.RequestID]:
				w.answered = now
			case w.listens[e.RequestID]:
				w.heard = now
			}
			delete(w.release, e.RequestID)
			delete(w.listens, e.RequestID)
		},
	}
}

// since returns how long each stage of one hand-off took. The hand-off began at begin, with Unlock
// or Resign in w's session, and ended at end, when next's session had the key.
func (w *watch) since(begin time.Time, next *watch, end time.Time) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next.mu.Lock()
	defer next.mu.Unlock()
	return []time.Duration{
		w.sent.Sub(begin), w.answered.Sub(w.sent), w.noticed.Sub(w.answered), next.heard.Sub(w.noticed), end.Sub(next.heard),
	}
}

// rawWrite makes one majority write, as an application would.
func rawWrite(ctx context.Context, db *mongo.Database, id int) error {
	return db.RunCommand(ctx, bson.D{
		{Key: "update", Value: "application"},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: id}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
}

// printStages prints the median of each stage.
func (r *run) printStages() {
	for i, name := range stages {
		var took []time.Duration
		for _, s := range r.Stages {
			took = append(took, s[i])
		}
		slices.Sort(took)
		fmt.Printf("  %9v  %s\n", took[len(took)/2].Round(time.Microsecond), name)
	}
}
