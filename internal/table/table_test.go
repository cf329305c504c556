// Package table checks the lists of tests in integration/README.md. It also checks that the tests named in the docs
// exist, that go test runs the examples, and that the exported names are used. The package is not in the module
// integration, where go test would use cached results even after the tests of this module had changed.
package table_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../.."

// folders maps packages, as the table and the docs name them, to their folders.
var folders = map[string]string{
	"adapters/robfigcron": "adapters/robfigcron",
	"clockcheck":          "clockcheck",
	"cmd/leasehold":       "cmd/leasehold",
	"core":                "internal/core",
	"docs":                "docs",
	"dsync":               "dsync",
	"dsync/admin":         "dsync/admin",
	"dsync/agent":         "dsync/agent",
	"dsync/dsynchttp":     "dsync/dsynchttp",
	"dsync/mongo":         "dsync/mongo",
	"dsynctest":           "dsync/dsynctest",
	"engine":              "internal/engine",
	"examples/languages":  "examples/languages",
	"fence":               "dsync/mongo/fence",
	"hostdir":             "internal/hostdir",
	"integration":         "integration",
	"internal/table":      "internal/table",
	"program":             "internal/program",
	"leader":              "leader",
	"leader/mongo":        "leader/mongo",
}

// suite is the test whose cases may be named by the table and the docs.
const suite = "dsynctest.TestStore"

// untested lists the numbers (of promises, limits, …) that have no test. Every number that it does not list must have a
// row that names a test.
var untested = map[string]bool{}

// numbers returns the numbers that must each have a row. Numbers without a letter belong to promises.
func numbers() []string {
	var all []string
	for _, s := range []struct {
		format string
		n      int
	}{{"%d", 10}, {"L%d", 16}, {"E%d", 16}, {"S%d", 5}, {"A%d", 6}, {"B%02d", 45}} {
		for i := range s.n {
			all = append(all, fmt.Sprintf(s.format, i+1))
		}
	}
	return all
}

// A row is one line of the lists.
type row struct{ number, what, tests string }

// line matches a row: its number, what the number stands for, and its tests.
var line = regexp.MustCompile("^- \\*\\*([^*]+)\\*\\* (.*?): (`.*`|no test: .*)$")

// rows reads the lists under the heading "What is tested where".
func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "integration/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## What is tested where\n")
	if !ok {
		t.Fatal(`integration/README.md has no section "What is tested where"`)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []row
	for l := range strings.Lines(section) {
		l = strings.TrimSpace(l)
		if !strings.HasPrefix(l, "- ") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("%q: want a number in bold, what the number stands for, and its tests", l)
		}
		all = append(all, row{m[1], m[2], m[3]})
	}
	return all
}

// Every number has one row, and every row names tests that exist.
func TestTableOfTests(t *testing.T) {
	known := tests(t)
	want, seen := numbers(), map[string]bool{}
	quoted := regexp.MustCompile("^`[^`]+`(, `[^`]+`)*$")
	for _, r := range rows(t) {
		switch {
		case !slices.Contains(want, r.number):
			t.Errorf("there is no number %q", r.number)
		case seen[r.number]:
			t.Errorf("%s has two rows", r.number)
		case r.what == "":
			t.Errorf("the row of %s does not say what the number stands for", r.number)
		}
		seen[r.number] = true
		if none := strings.HasPrefix(r.tests, "no test: "); none || untested[r.number] {
			if none != untested[r.number] {
				t.Errorf("%s: %q; listed in untested: %t", r.number, r.tests, untested[r.number])
			}
			continue
		}
		if !quoted.MatchString(r.tests) {
			t.Errorf("%s: %q are not names of tests", r.number, r.tests)
			continue
		}
		named := map[string]bool{}
		for name := range strings.SplitSeq(r.tests, ", ") {
			name = strings.Trim(name, "`")
			if !known[name] {
				t.Errorf("%s: there is no test %s", r.number, name)
			}
			if named[name] {
				t.Errorf("%s names %s twice", r.number, name)
			}
			named[name] = true
		}
	}
	for _, n := range want {
		if !seen[n] {
			t.Errorf("%s has no row", n)
		}
	}
}

// B23: the tests that docs/*.md and docs/model/*.md name exist.
func TestDocsNameTests(t *testing.T) {
	known := tests(t)
	named := regexp.MustCompile("`([a-z/]+\\.(?:Test|Fuzz|Example)[^` …]*)`")
	var pages []string
	for _, folder := range []string{"docs", "docs/model"} {
		names, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, names...)
	}
	n := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if n++; !known[m[1]] {
				t.Errorf("%s: there is no test %s", filepath.Base(page), m[1])
			}
		}
	}
	if n < 50 {
		t.Errorf("%d tests are named, want at least 50", n)
	}
}

// tests returns the names of all tests in the packages that the table and the docs may name.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for pkg, folder := range folders {
		n := len(known)
		for _, f := range files(t, folder, "*_test.go") {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && fn.Recv == nil && runs(fn) {
					known[pkg+"."+fn.Name.Name] = true
				}
			}
		}
		if len(known) == n {
			t.Fatalf("no tests in %s", folder)
		}
	}
	n := len(known)
	for _, f := range files(t, folders["dsynctest"], "suite_*.go") {
		ast.Inspect(f, func(node ast.Node) bool {
			if name, ok := caseName(node); ok {
				if known[suite+"/"+name] {
					t.Errorf("two cases of %s are named %s", suite, name)
				}
				known[suite+"/"+name] = true
			}
			return true
		})
	}
	if len(known) == n {
		t.Fatalf("%s has no cases", suite)
	}
	return known
}

// runs reports whether a function in a test file is a test, a fuzz test or an Example.
func runs(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List
	switch name := fn.Name.Name; {
	case strings.HasPrefix(name, "Example"):
		return len(params) == 0
	case name == "TestMain":
		return false
	case strings.HasPrefix(name, "Test"):
		return len(params) == 1 && len(params[0].Names) == 1 && isPointerTo(params[0].Type, "T")
	case strings.HasPrefix(name, "Fuzz"):
		return len(params) == 1 && len(params[0].Names) == 1 && isPointerTo(params[0].Type, "F")
	}
	return false
}

// isPointerTo reports whether typ is a pointer to a type of another package with the given name, such as *testing.T.
func isPointerTo(typ ast.Expr, name string) bool {
	star, ok := typ.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == name
}

// caseName returns S if n is the field name: "S" of a struct literal. Only the cases of the conformance suite have
// such a field.
func caseName(n ast.Node) (string, bool) {
	kv, ok := n.(*ast.KeyValueExpr)
	if !ok {
		return "", false
	}
	key, isIdent := kv.Key.(*ast.Ident)
	lit, isLit := kv.Value.(*ast.BasicLit)
	if !isIdent || !isLit || key.Name != "name" || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// files parses the files of a folder whose names match the pattern.
func files(t *testing.T, folder, pattern string) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, folder, pattern))
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*ast.File{}
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed[name] = f
	}
	return parsed
}

// B23: go test runs all Examples that don't need a server. It runs only Examples with an output comment.
func TestExamplesAreRun(t *testing.T) {
	// These need a server, so they are only compiled.
	notRun := map[string]bool{
		"dsync/mongo ExampleOpen": true, "dsync/mongo ExampleConnect": true,
		"dsync/mongo ExamplePrimaryWatch": true, "dsync/mongo ExampleOptions": true,
		"leader/mongo ExampleOpen": true, "leader/mongo ExampleConnect": true, "leader/mongo ExampleElection_Session": true,
		"adapters/clientgo Example": true, "adapters/clientgo Example_leader": true, "adapters/clientgo ExampleOptions": true,
	}
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, f := range files(t, folder, "*_test.go") {
			for _, ex := range doc.Examples(f) {
				n++
				name := filepath.ToSlash(folder) + " Example" + ex.Name
				if run := ex.Output != "" || ex.EmptyOutput; run == notRun[name] {
					t.Errorf("%s has an output comment: %t; listed in notRun: %t", name, run, run)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("%d examples, want at least 20", n)
	}
}
