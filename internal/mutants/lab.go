package main

import (
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

// A lab is a copy of the module in which mutants are tried, one at a time.
type lab struct {
	dir     string
	runs    int // how many runs a mutant must survive to count as survived
	verbose bool
}

// newLabs returns at least one lab, each a copy of the module at root. remove deletes them.
func newLabs(root string, n, runs int, verbose bool) (labs []lab, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	for i := range max(1, n) {
		l := lab{dir: filepath.Join(dir, fmt.Sprint(i)), runs: runs, verbose: verbose}
		if err := copyTree(l.dir, root); err != nil {
			remove()
			return nil, nil, err
		}
		labs = append(labs, l)
	}
	return labs, remove, nil
}

// test runs go test in the copy, ignoring cached results. Paths are trimmed, so that all copies share the cached
// builds of packages without a mutant. Optimization is off, because optimizing would take longer than the tests
// themselves.
func (l *lab) test(pkg, pattern, timeout string, flags ...string) (output string, passed bool) {
	args := append([]string{"test", "-short", "-count=1", "-trimpath", "-vet=off",
		"-gcflags=-N -l", "-ldflags=-s -w", "-run", pattern, "-timeout", timeout}, flags...)
	return l.run(append(args, pkg)...)
}

// run runs the go command in the copy.
func (l *lab) run(args ...string) (output string, passed bool) {
	cmd := exec.Command("go", args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	b, err := cmd.CombinedOutput()
	if l.verbose {
		os.Stdout.Write(b)
	}
	return string(b), err == nil
}

var begun = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)

// baseline runs, in the unchanged copy, the tests that the mutants name. All of them must exist and pass.
func (l *lab) baseline(list []mutant) error {
	patterns := map[string][]string{}
	for _, m := range list {
		if !slices.Contains(patterns[m.Pkg], m.pattern()) {
			patterns[m.Pkg] = append(patterns[m.Pkg], m.pattern())
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		p := patterns[pkg]
		start := time.Now()
		output, passed := l.test(pkg, strings.Join(p, "|"), "5m", "-v")
		if !passed {
			return fmt.Errorf("the tests of %s fail even without a mutant:\n%s", pkg, output)
		}
		var ran []string
		for _, m := range begun.FindAllStringSubmatch(output, -1) {
			ran = append(ran, m[1])
		}
		for _, m := range list {
			if m.Pkg == pkg && !slices.ContainsFunc(ran, m.matches) {
				return fmt.Errorf("%s: mutant %s: test %s does not exist in %s", m.at, m.Name, m.Test, pkg)
			}
		}
		fmt.Printf("%-16s without a mutant: %d tests pass\t%v\n", pkg, len(p), time.Since(start).Round(time.Second/10))
	}
	return nil
}

// try applies the mutant, runs its test, prints the verdict, and undoes the change.
func (l *lab) try(m mutant) verdict {
	start := time.Now()
	v, test, output := l.verdict(m)
	for runs := 1; v == survived && runs < l.runs; runs++ {
		if v, test, output = l.verdict(m); v == caught {
			v = sometimes
		}
	}
	line := fmt.Sprintf("%-12s %-40s %5.1f s  %s\n", v, m.Name, time.Since(start).Seconds(), test)
	if !v.good() {
		line += fmt.Sprintf("\t%s breaks %s\n\tgo test -short -run '%s' %s\n", m.at, m.Breaks, m.pattern(), m.Pkg)
		if v != survived {
			line += "\t" + strings.ReplaceAll(strings.TrimSpace(tail(output, 40)), "\n", "\n\t") + "\n"
		}
	}
	fmt.Print(line) // in one call, because other labs print too
	return v
}

func (l *lab) verdict(m mutant) (v verdict, test, output string) {
	before, after, err := m.applyTo(l.dir)
	if err != nil {
		return unapplied, "", err.Error()
	}
	file := filepath.Join(l.dir, filepath.FromSlash(m.File))
	if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
		return unclear, "", err.Error()
	}
	defer os.WriteFile(file, []byte(before), 0o644)
	output, passed := l.test(m.Pkg, m.pattern(), "60s")
	v, test = judge(output, passed)
	return v, test, output
}

// tail returns the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
