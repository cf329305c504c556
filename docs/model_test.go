package docs_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The comment at the head of each model/*.pml names the code that the model stands for: "folder: file.go (name, name)".
// The folder may be left out if it is the same as for the file before. Each file exists, and declares the names.
func TestModelsNameCode(t *testing.T) {
	models, err := filepath.Glob("model/*.pml")
	if err != nil || len(models) == 0 {
		t.Fatalf("no models: %v", err)
	}
	entry := regexp.MustCompile(`(?:(\S+): )?([\w/]+\.go)(?: \(([^)]*)\))?`)
	for _, model := range models {
		text, err := os.ReadFile(model)
		testkit.NoErr(t, err)
		head, _, _ := strings.Cut(string(text), "*/")
		head = strings.Join(strings.Fields(strings.ReplaceAll(head, "\n *", "\n")), " ")
		entries := entry.FindAllStringSubmatch(head, -1)
		if len(entries) == 0 {
			t.Errorf("%s: its head names no code", model)
		}
		folder := "no folder"
		for _, m := range entries {
			folder = cmp.Or(m[1], folder)
			names, err := declared(filepath.Join("..", folder, m[2]))
			if err != nil {
				t.Errorf("%s: %s: %v", model, m[0], err)
				continue
			}
			for name := range strings.SplitSeq(m[3], ", ") {
				if !names[name] {
					t.Errorf("%s: %s/%s does not declare %q", model, folder, m[2], name)
				}
			}
		}
	}
}

// declared returns the names of a file's functions, methods, types, constants and variables.
func declared(file string) (names map[string]bool, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	names = map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Name.Name] = true
			return false
		case *ast.TypeSpec:
			names[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		}
		return true
	})
	return names, nil
}
