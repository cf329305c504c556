package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// If there are 10,000 keys, leasehold status prints its first lines while most of the keys are still unread. It reads
// each key once, through the index, reads nothing else, and writes nothing.
func TestStatusOfManyKeys(t *testing.T) {
	const keys = 10_000
	const pagesOfAll = 13 // pages of 100, 200, 400, 800 and then 1,000 keys; the last page is not full
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		r.manyKeys(map[string]int{"before/": 1_000, "many/": keys, "n/": 1_000})
		spy := newSpy(r)

		cmd := spy.command("status", "many/")
		pipe, err := cmd.StdoutPipe()
		noErr(t, err)
		noErr(t, cmd.Start())
		// The pipe has room for a few hundred lines. When it is full, the process waits for the
		// reader.
		lines := bufio.NewReader(pipe)
		header, _ := lines.ReadString('\n')
		first, err := lines.ReadString('\n')
		if !strings.HasPrefix(header, "KEY ") || !strings.HasPrefix(first, "many/00000 ") || err != nil {
			t.Errorf("the first lines are %q and %q (error %v), want the header and the first key", header, first, err)
		}
		early := len(pages(spy.took("aggregate")))
		if early > pagesOfAll/2 {
			t.Errorf("%d pages were read before the first line was printed", early)
		}
		rest, err := io.ReadAll(lines)
		if err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		all := strings.SplitAfter(first+string(rest), "\n")
		if len(all) != keys+1 || all[keys] != "" {
			t.Fatalf("%d lines, want %d", len(all)-1, keys)
		}
		for i, line := range all[:keys] {
			if !strings.HasPrefix(line, fmt.Sprintf("many/%05d ", i)) || !strings.Contains(line, "held") {
				t.Fatalf("line %d is %q", i, line)
			}
		}

		read := pages(spy.took("aggregate"))
		if len(read) != pagesOfAll {
			t.Errorf("%d pages were read, want %d", len(read), pagesOfAll)
		}
		examined := 0
		for _, c := range read {
			examined += r.explained(t, c)
		}
		if examined > keys+len(read) {
			t.Errorf("%d entries of the index were examined, want one for each of %d keys and at most one more for each page", examined, keys)
		}
		lab.Note(t, "%d pages before the first line, %d in all, %d entries of the index by explain (0: it does not say)", early, len(read), examined)
		spy.wroteNothing("status")
	})
}

// manyKeys creates n[prefix] keys with each prefix. Each is a copy of one locked key, so the
// same session holds all of them.
func (r *room) manyKeys(n map[string]int) {
	r.t.Helper()
	lock(r.t, r.session(dsync.Options{}).Mutex("model"))
	var model bson.D
	if err := r.raw().FindOne(r.t.Context(), bson.D{{Key: "_id", Value: "k/model"}}).Decode(&model); err != nil {
		r.t.Fatal(err)
	}
	var docs []any
	for prefix, n := range n {
		for i := range n {
			doc := slices.Clone(model)
			for j := range doc {
				if doc[j].Key == "_id" {
					doc[j].Value = fmt.Sprintf("k/%s%05d", prefix, i)
				}
			}
			docs = append(docs, doc)
		}
	}
	all := r.raw()
	for some := range slices.Chunk(docs, 2_000) {
		if _, err := all.InsertMany(r.t.Context(), some); err != nil {
			r.t.Fatal(err)
		}
	}
}

// pages returns the recorded commands that read keys.
func pages(sent []proxy.Command) []bson.Raw {
	var all []bson.Raw
	for _, c := range sent {
		if from, _ := c.Body.Lookup("pipeline", "0", "$match", "_id", "$gte").StringValueOK(); strings.HasPrefix(from, "k/") {
			all = append(all, c.Body)
		}
	}
	return all
}
