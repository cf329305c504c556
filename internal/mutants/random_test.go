package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The operators make exactly these changes to a function; each is given as the changed line.
func TestOperators(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"compare":     {"_ = a < b", []string{"_ = a <= b", "_ = a >= b"}},
		"equal":       {"if a == b {\n}", []string{"if a != b {"}},
		"and":         {"if a && !b {\n}", []string{"if !(a && !b) {", "if a || !b {", "if a && b {"}},
		"condition":   {"if ok() {\n}", []string{"if !(ok()) {"}},
		"loop":        {"for more() {\n}", []string{"for !(more()) {"}},
		"else":        {"if a < b {\n} else { b() }", []string{"if a <= b {", "if a >= b {", "}", "} else {  }"}},
		"arithmetic":  {"x := a + b*c", []string{"x := a - b*c", "x := a + b/c"}},
		"count":       {"n++", []string{"", "n--"}},
		"add":         {"n += 3", []string{"", "n -= 3", "n += (2*3)", "n += (3/2)"}},
		"delete":      {"f()", []string{""}},
		"assignment":  {"x = y", []string{""}},
		"declaration": {"x := y", nil},
		"defer":       {"defer f()", []string{""}},
		"timer":       {"defer t.Stop()", nil},
		"log":         {`s.warn("dsync: no", "n", 1+1)`, nil},
		"error text":  {`_ = fmt.Errorf("%d", 1+1)`, nil},
		"panic":       {"panic(1 + 1)", []string{""}},
		"room":        {"x := make([]int, 0, 8)", nil},
		"channel":     {"c := make(chan int, 1)", []string{"c := make(chan int, 0)", "c := make(chan int, 2)"}},
		"text":        {`_ = "a" + b`, nil},
		"bounds":      {"_ = min(a, b)", []string{"_ = max(a, b)"}},
		"bool":        {"x := true", []string{"x := false"}},
		"cases":       {"switch a {\ncase b: f()\ncase c:\n}", []string{"", "case b:", ""}},
		"returned":    {"return n, b, err", []string{"return 0, b, err", "return n, !(b), err", "return n, b, nil"}},
		"the same":    {"return 0, false, nil", []string{"return 1, false, nil", "return 0, true, nil"}},
		"forwarded":   {"return f()", nil},
		"inner":       {"f = func() bool { return b }", []string{"", "f = func() bool { return !(b) }"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := "package p\n\nfunc p() (n int, ok bool, err error) {\n" + c.src + "\n}\n"
			all, err := changes("p.go", src)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				lines := strings.Split(src[:c.start]+c.text+src[c.end:], "\n")
				got = append(got, strings.TrimRight(lines[c.line-1], " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("changed lines\n%q, want\n%q", got, c.want)
			}
		})
	}
}

// A seed gives the same mutants regardless of how many are tried at once. A mutant that does not compile does not
// count. A mutant may be caught by the tests of its own package or of a package that depends on it.
func TestRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("builds many test programs")
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.25.0\n",
		"a/a.go":      "package a\n\nfunc Positive(n int) bool { return n > 0 }\n\nfunc Sum(a, b int) int {\n\tc := a\n\tc += b\n\treturn c\n}\n\nfunc Unused(n int) bool { return n < 9 }\n\nfunc No() string {\n\ts := *new(string) + \"\"\n\treturn s\n}\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(1, 2) != 3 {\n\t\tt.Error(Sum(1, 2))\n\t}\n}\n",
		"b/b_test.go": "package b\n\nimport (\n\t\"m/a\"\n\t\"testing\"\n)\n\nfunc TestPositive(t *testing.T) {\n\tif a.Positive(0) || !a.Positive(1) {\n\t\tt.Error()\n\t}\n}\n",
		"c/c_test.go": "package c\n\nimport (\n\t_ \"m/a\"\n\t\"testing\"\n)\n\nfunc TestFails(t *testing.T) { t.Error() }\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(workers, n int) string {
		var out strings.Builder
		d := draw{n: n, seed: 7, workers: workers, patterns: []string{"./a"}, out: &out}
		if err := d.run(root); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	places := func(out string) string {
		var all []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, " a/a.go:") && !strings.HasPrefix(line, "#") {
				all = append(all, line[:75]) // without the time and the name of the test
			}
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	if one, two := places(run(1, 2)), places(run(2, 2)); one != two || strings.Count(one, "\n") != 1 {
		t.Errorf("one at a time\n%s\ntwo at once\n%s", one, two)
	}

	out := run(2, 1000)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got, want := lines[len(lines)-1], "seed 7: caught 6 of 10 mutants, 60.0 % (1 more did not compile)"; got != want {
		t.Errorf("the last line is %q, want %q", got, want)
	}
	for _, want := range []string{
		"left out: the tests of m/c",
		"TestSum", "TestPositive",
		"# a/a.go:11: < becomes >=\nfile: a/a.go\n- func Unused(n int) bool { return n < 9 }\n+ func Unused(n int) bool { return n >= 9 }\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		fmt.Println(out)
	}
}
