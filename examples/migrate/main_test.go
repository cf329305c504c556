package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// One process migrates, and all three start with its result.
func TestOneMigrates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		rows := &memory{}
		f := &fleet{ttl: 10 * time.Second, json: true}
		if err := run(t.Context(), f, rows, time.Second, &out); err != nil {
			t.Error(err)
		}
		check(t, &out, rows)
	})
}

// A fleet that is stopped while it migrates ends, without an error and without a
// result.
func TestToldToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		time.AfterFunc(2500*time.Millisecond, func() { cancel(errors.New("terminated")) })
		var out bytes.Buffer
		f := &fleet{ttl: 10 * time.Second, json: true}
		if err := run(ctx, f, &memory{}, time.Second, &out); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		for _, l := range lines(t, &out) {
			if l.Msg == "starts" {
				t.Errorf("%+v", l)
			}
		}
	})
}

// A process that dies half-way is followed by another, which goes on there.
func TestAnotherGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, nil)) // of all: it locks what it writes to
		rows := &memory{}
		dies := newProcess(t, "dies", link, slog.New(slog.DiscardHandler))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := start(t.Context(), dies, rows, 4*time.Second); !errors.Is(err, dsync.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
		})
		time.Sleep(2500 * time.Millisecond)
		link.Cut()
		for _, name := range []string{"one", "two", "three"} {
			p := newProcess(t, name, store, log)
			wg.Go(func() {
				if err := start(t.Context(), p, rows, 4*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		check(t, &out, rows)
		if first, last := rows.rows[plans[0]], rows.rows[plans[len(plans)-1]]; first >= last {
			t.Errorf("the first row has token %d, the last %d, want that of a later run", first, last)
		}
	})
}

// check checks that of three processes one migrates, that all know of its result, and
// that all rows are there, the later ones with tokens that are not smaller.
func check(t *testing.T, out *bytes.Buffer, rows *memory) {
	t.Helper()
	began, results := 0, map[string]int{}
	for _, l := range lines(t, out) {
		switch {
		case l.Msg == "migrates":
			began++
		case l.Msg == "starts":
			results[l.Migration]++
		case !strings.HasPrefix(l.Msg, "dsync: "):
			t.Errorf("%+v", l)
		}
	}
	if began != 1 {
		t.Errorf("%d of the processes migrate, want 1", began)
	}
	for result, n := range results {
		if len(results) != 1 || n != 3 {
			t.Errorf("%d processes know of %q, want all 3", n, result)
		}
	}
	if len(results) == 0 || len(rows.rows) != len(plans) {
		t.Errorf("results %v, rows %v", results, rows.rows)
	}
	for i, plan := range plans[1:] {
		if rows.rows[plan] < rows.rows[plans[i]] || rows.rows[plan] == 0 {
			t.Errorf("%s has token %d, want at least that of %s, %d", plan, rows.rows[plan], plans[i], rows.rows[plans[i]])
		}
	}
}
