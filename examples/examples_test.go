// Package examples_test checks that each example can be copied out of the repository unchanged.
// The script .ci/modules checks that such copies compile in a module of their own.
package examples_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/leasehold-go/leasehold/"

// No example imports an internal package or another example.
func TestImportsArePublic(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("%d files, want at least 10", len(files))
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if inside, ok := strings.CutPrefix(path, module); ok && (strings.Contains("/"+inside+"/", "/internal/") || strings.HasPrefix(inside, "examples/")) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// The tour on a store in memory is the first program that people run, so it must not need the driver. Compiling the
// driver takes a minute and a half of CPU time, while everything else takes a few seconds.
func TestTourNeedsNoDriver(t *testing.T) {
	for tags, want := range map[string]bool{"": false, "mongodb": true} {
		deps, err := exec.Command("go", "list", "-deps", "-tags", tags, "./tour").CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, deps)
		}
		if got := strings.Contains(string(deps), "go.mongodb.org/mongo-driver"); got != want {
			t.Errorf("built with tags %q, the tour imports the driver: %t, want %t", tags, got, want)
		}
	}
	if out, err := exec.Command("go", "vet", "-tags", "mongodb", "./tour").CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
