package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMutantsCompile is quick, whereas running all mutants takes a quarter of an hour. A mutant that does not compile
// proves nothing.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it type-checks a package for each mutant")
	}
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c := newCompiler(t, root, "./...", "./cmd/leasehold/...")
	for _, m := range all {
		if err := c.check(m); err != nil {
			t.Error(err)
		}
	}
}

func TestMutantsThatDoNotCompileAreFound(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.25.0\n",
		"a.go":   "package m\n\nimport \"os\"\n\nfunc a(n int) int { return n + one }\n\nfunc home() string { return os.Args[0] }\n\nconst one = 1\n",
		"b.go":   "package m\n\nimport \"strings\"\n\nvar _ = a(1)\n\nfunc b() string { return strings.Repeat(home(), a(one)) }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := newCompiler(t, root, "./...")
	for _, test := range []struct{ old, new, want string }{
		{"n + one", "n", ""},
		{"n + one", `n + "one"`, "mismatched types"},
		{"n + one", "n +", "expected operand"},
		{"os.Args[0]", `""`, `"os" imported and not used`},
		{"one = 1", "one = 2", ""},
		{"one = 1", `one = "1"`, "mismatched types"},
		{"home() string", "house() string", "undefined: home"}, // in the other file
		{"two", "three", "no longer applies"},
	} {
		err := c.check(mutant{Name: "x", File: "a.go", Edits: []edit{{test.old, test.new}}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q for %q: error %v, want %q", test.new, test.old, err, test.want)
		}
	}
}

// A compiler type-checks mutants of some packages of the module whose root directory is root.
type compiler struct {
	root     string
	fset     *token.FileSet
	imports  types.Importer
	packages map[string][]file // by folder
}

// The type file has the syntax trees of one source file: the field shape lacks the bodies of the functions, and the
// field bodies has them.
type file struct {
	name          string
	shape, bodies *ast.File
}

func newCompiler(t *testing.T, root string, packages ...string) *compiler {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	c := &compiler{root: root, fset: token.NewFileSet(), packages: map[string][]file{}}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c
}

// check returns why the mutant does not apply, or why its package does not compile. A mutant that changes only function
// bodies can't affect the other files. They are then checked without their function bodies, because checking a thousand
// mutants would otherwise take too long.
func (c *compiler) check(m mutant) error {
	before, after, err := m.applyTo(c.root)
	if err != nil {
		return err
	}
	dir, changed := filepath.Split(filepath.Join(c.root, filepath.FromSlash(m.File)))
	files, err := c.parseDir(dir)
	if err != nil {
		return err
	}
	f, err := c.parse(m.File, after)
	if err != nil {
		return fmt.Errorf("%s: mutant %s: %w", m.at, m.Name, err)
	}
	original, err := c.parse(m.File, before)
	if err != nil {
		return err
	}
	inside := c.outside(original, before) == c.outside(f, after)
	checked := []*ast.File{f}
	for _, other := range files {
		switch {
		case other.name == changed:
		case inside:
			checked = append(checked, other.shape)
		default:
			checked = append(checked, other.bodies)
		}
	}
	var errs []error
	config := types.Config{Importer: c.imports, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e); inside && c.fset.File(e.Pos) != c.fset.File(f.Pos()) {
			return // in another file, which was checked without function bodies
		}
		errs = append(errs, fmt.Errorf("%s: mutant %s: %w", m.at, m.Name, err))
	}}
	config.Check(m.File, c.fset, checked, nil)
	return errors.Join(errs...)
}

// parseDir returns the files of the package in a directory. Only the first call for a directory parses them.
func (c *compiler) parseDir(dir string) ([]file, error) {
	if files := c.packages[dir]; files != nil {
		return files, nil
	}
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		f := file{name: name}
		if f.bodies, err = c.parse(name, string(text)); err != nil {
			return nil, err
		}
		shape := *f.bodies
		shape.Decls = slices.Clone(shape.Decls)
		for i, d := range shape.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				shapeOf := *d
				shapeOf.Body = nil
				shape.Decls[i] = &shapeOf
			}
		}
		f.shape = &shape
		files = append(files, f)
	}
	c.packages[dir] = files
	return files, nil
}

func (c *compiler) parse(name, text string) (*ast.File, error) {
	return parser.ParseFile(c.fset, name, text, parser.SkipObjectResolution)
}

// outside returns the text of a file without the bodies of its functions.
func (c *compiler) outside(f *ast.File, text string) string {
	for _, d := range slices.Backward(f.Decls) {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			text = text[:c.fset.Position(d.Body.Pos()).Offset] + text[c.fset.Position(d.Body.End()).Offset:]
		}
	}
	return text
}
