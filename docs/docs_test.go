// Package docs_test checks docs/*.md and the README files. Their code must come from Examples or other compiled code,
// their links must lead to existing files and headings, and the error texts in runbook.md must exist in the code.
// internal/table checks that the tests named in docs/*.md exist. The code named in model/*.pml must exist, too.
package docs_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit"
)

// pages returns the text of every page, by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{
		"*.md", "model/*.md", "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CODE_OF_CONDUCT.md", "../CHANGELOG.md", "../bench/README.md", "../integration/README.md",
		"../adapters/*/README.md", "../cmd/*/README.md", "../otel/README.md",
	} {
		names, err := filepath.Glob(pattern)
		testkit.NoErr(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			testkit.NoErr(t, err)
			texts[filepath.ToSlash(name)] = string(text)
		}
	}
	if len(texts) < 5 {
		t.Fatalf("found %d pages, want at least 5", len(texts))
	}
	return texts
}

// trimmed returns code without empty lines, and without leading and trailing space on each line.
func trimmed(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// B23: every Go block in the documentation comes from code: from the program examples/quickstart,
// from the body of a function in examples_test.go, peers_test.go, shedlock_test.go or
// nolock_test.go, or from a file of integration/recipes. All this code is compiled. Code that is in an Example, or that
// a test calls, also runs. If a module has an example_test.go, a block in the module's README must come from that file.
func TestCodeIsFromExamples(t *testing.T) {
	quickstart, err := os.ReadFile("../examples/quickstart/main.go")
	testkit.NoErr(t, err)
	bodies := []string{trimmed(string(quickstart))}
	for _, name := range []string{"examples_test.go", "peers_test.go", "shedlock_test.go", "nolock_test.go"} {
		bodies = append(bodies, functions(t, name)...)
	}
	recipes, err := filepath.Glob("../integration/recipes/*_test.go")
	if err != nil || len(recipes) == 0 {
		t.Fatalf("no recipes: %v", err)
	}
	for _, name := range recipes {
		source, err := os.ReadFile(name)
		testkit.NoErr(t, err)
		bodies = append(bodies, trimmed(string(source)))
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	n := 0
	for name, text := range pages(t) {
		bodies := bodies
		if examples := filepath.Join(filepath.Dir(name), "example_test.go"); filepath.Base(name) == "README.md" && exists(examples) {
			bodies = functions(t, examples)
		}
	blocks:
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			n++
			code := trimmed(m[1])
			for _, body := range bodies {
				if strings.Contains("\n"+body, "\n"+code) {
					continue blocks
				}
			}
			t.Errorf("%s: no function of the examples contains\n%s", name, m[1])
		}
	}
	if n < 10 {
		t.Errorf("found %d Go blocks, want at least 10", n)
	}
}

// functions returns the trimmed bodies of a file's functions.
func functions(t *testing.T, name string) []string {
	t.Helper()
	source, err := os.ReadFile(name)
	testkit.NoErr(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, 0)
	testkit.NoErr(t, err)
	var bodies []string
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			bodies = append(bodies, trimmed(string(source[fset.Position(fn.Body.Lbrace).Offset+1:fset.Position(fn.Body.Rbrace).Offset])))
		}
	}
	return bodies
}

// Workflows refer to actions by commit, because anyone with write access to an action can move its
// tags.
func TestActionsAreCommits(t *testing.T) {
	names, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	commit := regexp.MustCompile(`@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		testkit.NoErr(t, err)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "uses:") && !commit.MatchString(line) {
				t.Errorf("%s: %q, want a commit and its version, such as @0123… # v1.2.3", name, line)
			}
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Relative links lead to existing files and headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	texts := pages(t)
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			text, err := os.ReadFile(target)
			if errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
			if anchor != "" && !anchors(string(text))[anchor] {
				t.Errorf("%s: %s has no heading %q", name, target, anchor)
			}
		}
	}
}

// anchors returns the anchors that GitHub generates for the headings.
func anchors(text string) map[string]bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading := strings.TrimLeft(line, "#"); len(heading) < len(line) {
			heading = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all[strings.ReplaceAll(heading, " ", "-")] = true
		}
	}
	return all
}

// The error texts that runbook.md explains exist in the library. Each is a heading in backquotes
// under "Troubleshooting"; "…" stands for a part that varies.
func TestErrorTextsAreTheCodes(t *testing.T) {
	_, section, ok := strings.Cut(pages(t)["runbook.md"], "\n## Troubleshooting\n")
	if !ok {
		t.Fatal("runbook.md has no section Troubleshooting")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	known := texts(t)
	n := 0
	for line := range strings.Lines(section) {
		heading, ok := strings.CutPrefix(line, "### `")
		if !ok {
			continue
		}
		n++
		heading = strings.TrimSuffix(strings.TrimSpace(heading), "`")
		for part := range strings.SplitSeq(heading, "…") {
			if part = strings.TrimSpace(part); len(part) > 1 && !strings.Contains(known, part) {
				t.Errorf("the library does not contain the text %q", part)
			}
		}
	}
	if n < 10 {
		t.Errorf("found %d texts, want at least 10", n)
	}
}

// texts returns the source of the library's packages, without tests. In the result, quotation marks are not escaped.
func texts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"../dsync", "../dsync/driver", "../internal/core", "../internal/engine", "../leader", "../clockcheck"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.WriteString(strings.ReplaceAll(string(text), `\"`, `"`))
			return err
		})
		testkit.NoErr(t, err)
	}
	return all.String()
}
