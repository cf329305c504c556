package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A lab tries mutants, one at a time.
type lab struct {
	root    string // of the module
	dir     string // for the changed file
	verbose bool
}

// test runs go test, ignoring cached results. Optimization is off, because optimizing would take longer than the tests
// themselves.
func (l *lab) test(pkg, pattern, timeout string, flags ...string) (output string, passed bool) {
	args := append([]string{"test", "-count=1", "-vet=off",
		"-gcflags=-N -l", "-ldflags=-s -w", "-run", pattern, "-timeout", timeout}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = l.root
	if !strings.HasPrefix(pkg, "./cmd/") { // commands are modules of their own, which need the workspace
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	b, err := cmd.CombinedOutput()
	if l.verbose {
		os.Stdout.Write(b)
	}
	return string(b), err == nil
}

// passedTest finds the tests that passed. A test that was skipped would catch nothing.
var passedTest = regexp.MustCompile(`(?m)^ *--- PASS: (\S+)`)

// baseline runs the tests that the mutants name, on the unchanged code. All of these tests must exist and pass, and none
// may be skipped.
func (l *lab) baseline(list []mutant) error {
	patterns := map[string][]string{}
	for _, m := range list {
		if !slices.Contains(patterns[m.Pkg], m.pattern()) {
			patterns[m.Pkg] = append(patterns[m.Pkg], m.pattern())
		}
	}
	var errs []error
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		p := patterns[pkg]
		start := time.Now()
		output, passed := l.test(pkg, strings.Join(p, "|"), "5m", "-v")
		if !passed {
			errs = append(errs, fmt.Errorf("the tests of %s fail even without a mutant:\n%s", pkg, tail(output, 100)))
			continue
		}
		var ran []string
		for _, m := range passedTest.FindAllStringSubmatch(output, -1) {
			ran = append(ran, m[1])
		}
		for _, m := range list {
			if m.Pkg == pkg && !slices.ContainsFunc(ran, m.matches) {
				errs = append(errs, fmt.Errorf("%s: mutant %s: test %s does not exist in %s, or is skipped", m.at, m.Name, m.Test, pkg))
			}
		}
		fmt.Printf("%-16s without a mutant: %d tests pass\t%v\n", pkg, len(p), time.Since(start).Round(time.Second/10))
	}
	return errors.Join(errs...)
}

// runs is how often a mutant's test must pass for the mutant to count as survived.
const runs = 10

// try runs the mutant's test, repeats it if it passes, and prints the verdict.
func (l *lab) try(m mutant) verdict {
	start := time.Now()
	v, test, output := l.verdict(m)
	for n := 1; v == survived && n < runs; n++ {
		if v, test, output = l.verdict(m); v == caught {
			v = sometimes
		}
	}
	line := fmt.Sprintf("%-12s %-40s %5.1f s  %s\n", v, m.Name, time.Since(start).Seconds(), test)
	if !v.good() {
		line += fmt.Sprintf("\t%s breaks %s\n\tgo test -run '%s' %s\n", m.at, m.Breaks, m.pattern(), m.Pkg)
		if v != survived {
			line += "\t" + strings.ReplaceAll(strings.TrimSpace(tail(output, 40)), "\n", "\n\t") + "\n"
		}
	}
	fmt.Print(line) // in one call, because other labs print too
	return v
}

// verdict runs the mutant's test. The change is an overlay of the build, so that the tree stays as it is.
func (l *lab) verdict(m mutant) (v verdict, test, output string) {
	_, after, err := m.applyTo(l.root)
	if err != nil {
		return unapplied, "", err.Error()
	}
	changed, overlay := filepath.Join(l.dir, "changed.go"), filepath.Join(l.dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(l.root, filepath.FromSlash(m.File)): changed},
	})
	err = errors.Join(err, os.WriteFile(changed, []byte(after), 0o644), os.WriteFile(overlay, text, 0o644))
	if err != nil {
		return unclear, "", err.Error()
	}
	output, passed := l.test(m.Pkg, m.pattern(), "60s", "-overlay="+overlay)
	v, test = judge(output, passed)
	return v, test, output
}

// tail returns the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
