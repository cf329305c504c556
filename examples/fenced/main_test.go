package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// Without a server the program says what it needs.
func TestNeedsAServer(t *testing.T) {
	err := run(t.Context(), &fleet{ttl: time.Second}, time.Second, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "MONGODB_URI") {
		t.Errorf("got %v, want an error that names MONGODB_URI", err)
	}
}

// A document in memory, which knows the rule of the fence, and none of how a MongoDB
// keeps it: that is for the tests of dsync/mongo and of integration.
type document struct {
	seen int64
	log  []string
}

func (d *document) writer(by string) func(context.Context, int64) error {
	return func(_ context.Context, token int64) error {
		if token < d.seen {
			return dsyncmongo.ErrFenced
		}
		d.seen = token
		d.log = append(d.log, by)
		return nil
	}
}

// The write of a holder that was away for longer than its lease comes with the token
// that it had, which is smaller than that of the next holder.
func TestLateWriteHasTheSmallerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		var doc document
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, nil)) // of both: it locks what it writes to
		anna := &writer{process: newProcess(t, "anna", link, log), think: time.Minute, write: doc.writer("anna")}
		bert := &writer{process: newProcess(t, "bert", store, log), think: time.Second, write: doc.writer("bert")}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := anna.run(t.Context()); !errors.Is(err, dsyncmongo.ErrFenced) {
				t.Errorf("the write after the lease: got %v, want ErrFenced", err)
			}
		})
		synctest.Wait()
		link.Cut() // the same to the others as a process that is frozen
		if err := bert.run(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if strings.Join(doc.log, " ") != "bert" {
			t.Errorf("written by %v, want bert alone", doc.log)
		}
		var said []string
		for _, l := range lines(t, &out) {
			if !strings.HasPrefix(l.Msg, "dsync: ") {
				said = append(said, l.Process+" "+l.Msg)
			}
		}
		if got, want := strings.Join(said, ", "), "anna holds, bert holds, bert wrote, anna refused"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
