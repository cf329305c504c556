package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// Each mutant in testdata applies to the current tree. This quickly finds mutants whose lines somebody has
// edited. go run ./internal/mutants takes much longer: it checks that each mutant is caught.
func TestMutantsApply(t *testing.T) {
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 45 {
		t.Errorf("%d mutants, want at least 45", len(all))
	}
	for _, m := range all {
		if _, _, err := m.applyTo(root); err != nil {
			t.Error(err)
		}
	}
}

// Each mutant's test exists in its package. This quickly finds mutants whose tests somebody has renamed or moved.
func TestMutantsNameTests(t *testing.T) {
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	tests := make(map[string]map[string]bool) // by package
	for _, m := range all {
		if tests[m.Pkg] == nil {
			tests[m.Pkg] = make(map[string]bool)
			files, err := filepath.Glob(filepath.Join(root, m.Pkg, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range declared.FindAllSubmatch(text, -1) {
					tests[m.Pkg][string(name[1])] = true
				}
			}
		}
		test, _, _ := strings.Cut(m.Test, "/")
		for name := range strings.SplitSeq(test, "|") {
			if !tests[m.Pkg][name] {
				t.Errorf("%s: mutant %s: package %s has no test %s", m.at, m.Name, m.Pkg, name)
			}
		}
	}
}

func TestParse(t *testing.T) {
	const text = `# a comment

mutant: a
breaks: promise 1:
breaks: "one holder"
file: x.go
- old
-	older
+ new
-old too
test: ./x TestX/by time

mutant: b
breaks: B01
file: y.go
- y
+
test: ./y TestY|TestZ
`
	all, err := parse("f.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].at != "f.txt:3" || all[0].Breaks != `promise 1: "one holder"` || len(all[0].Edits) != 2 {
		t.Fatalf("parsed %+v", all)
	}
	if got, want := all[0].Edits[0], (edit{"old\n\tolder", "new"}); got != want {
		t.Errorf("first edit %q, want %q", got, want)
	}
	if got, want := all[0].Edits[1], (edit{"old too", ""}); got != want {
		t.Errorf("second edit %q, want %q", got, want)
	}
	if got, want := all[0].pattern(), "^(?:TestX)$/^(?:by time)$"; got != want {
		t.Errorf("pattern %s, want %s", got, want)
	}
	for name, want := range map[string]bool{"TestX/by_time": true, "TestX/by_time/more": true, "TestX": false, "TestXY/by_time": false} {
		if got := all[0].matches(name); got != want {
			t.Errorf("matches %s: %t, want %t", name, got, want)
		}
	}
	for what, text := range map[string]string{
		"no test":       "mutant: a\nbreaks: b\nfile: f\n- x\n",
		"no edit":       "mutant: a\nbreaks: b\nfile: f\ntest: ./x TestX\n",
		"no mutant":     "breaks: b\n",
		"unknown field": "mutant: a\nbrakes: b\n",
		"lone +":        "mutant: a\nbreaks: b\nfile: f\n+ x\ntest: ./x TestX\n",
		"bad pattern":   "mutant: a\nbreaks: b\nfile: f\n- x\ntest: ./x Test(\n",
	} {
		if _, err := parse("f.txt", text); err == nil || !strings.HasPrefix(err.Error(), "f.txt:") {
			t.Errorf("%s: error %v, want one that says where", what, err)
		}
	}
}

func TestApplyWantsTheTextOnce(t *testing.T) {
	m := mutant{Name: "m", File: "x.go", Edits: []edit{{"a", "b"}}}
	if got, err := m.apply("xay"); got != "xby" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"xyz", "aba"} {
		if _, err := m.apply(text); err == nil || !strings.Contains(err.Error(), "no longer applies") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		passed bool
		want   verdict
		test   string
	}{
		"passed":     {"ok  \tm/dsync\t0.1s\n", true, survived, ""},
		"no tests":   {"ok  \tm/dsync\t0.1s [no tests to run]\n", true, noTests, ""},
		"failed":     {"--- FAIL: TestX (0.00s)\n    x_test.go:1: no\nFAIL\nFAIL\tm/dsync\t0.1s\n", false, caught, "TestX"},
		"deadlock":   {"--- FAIL: TestX (0.00s)\npanic: deadlock: main bubble goroutine has exited\n", false, caught, "TestX"},
		"timed out":  {"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestX (1m0s)\n", false, timedOut, ""},
		"no Go":      {"# m/dsync\nx.go:1:1: syntax error\nFAIL\tm/dsync [build failed]\n", false, notBuilt, ""},
		"nil":        {"--- FAIL: TestX (0.00s)\npanic: runtime error: invalid memory address\n", false, crashed, ""},
		"unlocked":   {"fatal error: sync: unlock of unlocked mutex\n\tgoroutine 1\nFAIL\tm/dsync\t0.1s\n", false, crashed, ""},
		"panic":      {"panic: not elected\n\ngoroutine 1 [running]:\nFAIL\tm/dsync\t0.1s\n", false, caught, "not elected"},
		"killed":     {"signal: killed\nFAIL\tm/dsync\t0.1s\n", false, unclear, ""},
		"setup":      {"FAIL\tm/dsync [setup failed]\n", false, notBuilt, ""},
		"in a child": {"--- FAIL: TestX (0.00s)\n    --- FAIL: TestX/sub (0.00s)\n", false, caught, "TestX"},
	} {
		t.Run(name, func(t *testing.T) {
			v, test := judge(c.output, c.passed)
			if v != c.want || test != c.test {
				t.Errorf("got %s %q, want %s %q", v, test, c.want, c.test)
			}
		})
	}
}
