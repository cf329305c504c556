package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// r.explained fails the test unless the server answers the command from the index, and scans only the range of the keys
// with the prefix "many/". It returns the number of entries that the server examined. If the command has no limit, or
// the server is FerretDB, it returns 0.
func (r *room) explained(t *testing.T, command bson.Raw) (examined int) {
	t.Helper()
	var cmd bson.D
	for _, field := range []string{"aggregate", "pipeline", "cursor"} {
		cmd = append(cmd, bson.E{Key: field, Value: command.Lookup(field)})
	}
	raw, err := r.Client(t).Database(r.DB).RunCommand(t.Context(), bson.D{
		{Key: "explain", Value: cmd}, {Key: "verbosity", Value: "executionStats"},
	}).Raw()
	if err != nil {
		t.Fatalf("explain: %v", err)
	}
	if r.FerretDB() {
		r.explainedByPostgres(t, raw)
		return 0
	}
	var stages []string
	walk(raw, func(name string, v bson.RawValue) {
		switch name {
		case "winningPlan":
			walk(v.Document(), func(name string, v bson.RawValue) {
				if stage, ok := v.StringValueOK(); ok && name == "stage" {
					stages = append(stages, stage)
				}
				if name == "indexBounds" && !strings.Contains(v.String(), "k/many0") {
					t.Errorf("the index is scanned beyond the range: %v", v)
				}
			})
		case "totalKeysExamined":
			n, _ := v.AsInt64OK()
			examined += int(n)
		}
	})
	if !slices.Contains(stages, "IXSCAN") || slices.Contains(stages, "COLLSCAN") || slices.Contains(stages, "SORT") {
		t.Errorf("stages %v, want a scan of the index, no scan of the collection and no sort", stages)
	}
	if !slices.Contains(stages, "LIMIT") { // without a limit, explain examines the whole range, so the number says nothing about the command
		return 0
	}
	return examined
}

// explainedByPostgres applies the checks of r.explained to FerretDB's answer, which is PostgreSQL's plan.
func (r *room) explainedByPostgres(t *testing.T, raw bson.Raw) {
	t.Helper()
	ranges := 0
	walk(raw, func(name string, v bson.RawValue) {
		switch text, _ := v.StringValueOK(); {
		case name == "Node Type" && text == "Seq Scan":
			t.Errorf("the whole collection is scanned: %v", raw)
		case name == "Index Cond":
			if !strings.Contains(text, "(object_id OPERATOR(documentdb_core.>)") || !strings.Contains(text, "(object_id OPERATOR(documentdb_core.<)") {
				t.Errorf("the index is scanned beyond the range: %s", text)
			}
			ranges++
		}
	})
	if ranges != 1 {
		t.Errorf("%d scans of an index, want one: %v", ranges, raw)
	}
}

// A sweep examines only the index entries in its slice of the collection, each once.
func TestSweepReadsItsSlice(t *testing.T) {
	const each = 800
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		if s.FerretDB() {
			lab.Skip(t, s, "its explain has another format")
		}
		r := newRoom(t, s)
		var docs []any
		for i := range each {
			for _, prefix := range []string{"a", "k", "l", "p", "s", "z"} {
				docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%04d", prefix, i)}, {Key: "at", Value: time.Now()}})
			}
		}
		if _, err := r.raw().InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
		mon := newMonitor(r.DB)
		db := r.Client(t, mon.client()).Database(r.DB)
		store, err := dsyncmongo.NewStore(r.opening(), db, nil)
		noErr(t, err)
		sweep(t, store, time.Hour)

		statements, examined := 0, 0
		for _, c := range mon.commands(nil) {
			if c.name != "delete" {
				continue
			}
			deletes, _ := c.body.Lookup("deletes").Array().Values()
			for _, one := range deletes { // explain accepts only one statement
				raw, err := db.RunCommand(t.Context(), bson.D{
					{Key: "explain", Value: bson.D{{Key: "delete", Value: collection}, {Key: "deletes", Value: bson.A{one}}}},
					{Key: "verbosity", Value: "executionStats"},
				}).Raw()
				if err != nil {
					t.Fatalf("explain: %v", err)
				}
				statements++
				read := 0
				walk(raw, func(name string, v bson.RawValue) {
					switch name {
					case "winningPlan":
						if plan := v.String(); strings.Contains(plan, "COLLSCAN") {
							t.Errorf("the collection is scanned: %s", plan)
						}
					case "totalKeysExamined": // a router reports the value for itself and for its shards
						n, _ := v.AsInt64OK()
						read = max(read, int(n))
					}
				})
				examined += read
			}
		}
		// The library has three kinds of records. To find the end of its range, a statement may
		// examine one more entry.
		if want := 3 * each; examined < want || examined > want+statements {
			t.Errorf("%d statements examined %d entries of the index, want %d, and at most one more for each", statements, examined, want)
		}
		lab.Note(t, "%d statements of delete, %d entries of the index by explain, for %d records", statements, examined, 3*each)
	})
}

// walk calls f for every field in doc, at any depth.
func walk(doc bson.Raw, f func(name string, v bson.RawValue)) {
	elements, _ := doc.Elements()
	for _, e := range elements {
		f(e.Key(), e.Value())
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument:
			walk(v.Document(), f)
		case bson.TypeArray:
			walk(bson.Raw(v.Array()), f)
		}
	}
}
