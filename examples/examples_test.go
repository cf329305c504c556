// Package examples_test checks that each example can be copied out of the repository as
// it is. That the copies compile in a module of their own is checked by .ci/modules.
package examples_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/leasehold-go/leasehold/"

// No example imports a package that others can't import, or another example.
func TestImportsArePublic(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("%d files, want more", len(files))
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
