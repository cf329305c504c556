package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A mutant is one wrong change.
type mutant struct {
	Name   string
	Breaks string // the promise or rule, quoted
	File   string // relative to the module's root, with slashes
	Edits  []edit
	Pkg    string // for example "./dsync"
	Test   string // as for go test -run, with each part anchored
	at     string // file:line where the mutant is defined
}

// An edit replaces a text that must occur exactly once in the file.
type edit struct{ old, new string }

// load reads the mutants of all files in dir.
func load(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	seen := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		list, err := parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if before, twice := seen[m.Name]; twice {
				return nil, fmt.Errorf("%s: mutant %s already exists at %s", m.at, m.Name, before)
			}
			seen[m.Name] = m.at
		}
		all = append(all, list...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no mutants in %s", dir)
	}
	return all, nil
}

// parse reads the format that README.md describes.
func parse(name, text string) ([]mutant, error) {
	var all []mutant
	var m *mutant
	n, after := 0, byte(0) // the number of the line, and the sign of the line before it
	fail := func(format string, args ...any) ([]mutant, error) {
		return nil, fmt.Errorf("%s:%d: %s", name, n, fmt.Sprintf(format, args...))
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		n++
		line := lines.Text()
		if line == "" || line[0] == '#' {
			after = 0
			continue
		}
		if sign := line[0]; sign == '-' || sign == '+' {
			if m == nil || sign == '+' && after == 0 {
				return fail("%q must follow a mutant or a line that begins with '-'", line)
			}
			if sign == '-' && after != '-' {
				m.Edits = append(m.Edits, edit{})
			}
			e := &m.Edits[len(m.Edits)-1]
			part := &e.old
			if sign == '+' {
				part = &e.new
			}
			if after == sign {
				*part += "\n"
			}
			*part += strings.TrimPrefix(line[1:], " ")
			after = sign
			continue
		}
		after = 0
		field, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || value == "" || m == nil && field != "mutant" {
			return fail("want mutant, breaks, file, test, or a line that begins with '-' or '+': %q", line)
		}
		switch field {
		case "mutant":
			all = append(all, mutant{Name: value, at: fmt.Sprintf("%s:%d", name, n)})
			m = &all[len(all)-1]
		case "breaks":
			m.Breaks = strings.TrimSpace(m.Breaks + " " + value)
		case "file":
			m.File = value
		case "test":
			m.Pkg, m.Test, _ = strings.Cut(value, " ")
			m.Test = strings.TrimSpace(m.Test)
		default:
			return fail("unknown field %q", field)
		}
	}
	for _, m := range all {
		if m.Breaks == "" || m.File == "" || m.Pkg == "" || m.Test == "" || len(m.Edits) == 0 {
			return nil, fmt.Errorf("%s: mutant %s needs breaks, file, lines with '-' and '+', and test with a package and a pattern", m.at, m.Name)
		}
		if _, err := regexp.Compile(m.pattern()); err != nil {
			return nil, fmt.Errorf("%s: test: %w", m.at, err)
		}
	}
	return all, lines.Err()
}

// pattern returns the -run argument for go test. The pattern for TestX does not match TestXY.
func (m *mutant) pattern() string {
	parts := strings.Split(m.Test, "/")
	for i, p := range parts {
		parts[i] = "^(?:" + p + ")$"
	}
	return strings.Join(parts, "/")
}

// matches reports whether the mutant's pattern selects the test with the given full name.
func (m *mutant) matches(name string) bool {
	want, got := strings.Split(m.Test, "/"), strings.Split(name, "/")
	if len(got) < len(want) {
		return false
	}
	for i, w := range want {
		re := regexp.MustCompile("^(?:" + strings.ReplaceAll(w, " ", "_") + ")$")
		if !re.MatchString(got[i]) {
			return false
		}
	}
	return true
}

// apply returns the text with the change made. If the text to be changed does not occur exactly once, apply returns an
// error. A mutant that changes nothing, or the wrong place, would prove nothing.
func (m *mutant) apply(text string) (string, error) {
	var errs []error
	for _, e := range m.Edits {
		if n := strings.Count(text, e.old); n != 1 {
			errs = append(errs, fmt.Errorf("%s: mutant %s no longer applies: in %s this text occurs %d times and must occur once:\n%s",
				m.at, m.Name, m.File, n, e.old))
			continue
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, errors.Join(errs...)
}

// applyTo returns the text of the mutant's file in the module at root, before and after the change. It writes nothing.
func (m *mutant) applyTo(root string) (before, after string, err error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return "", "", fmt.Errorf("%s: mutant %s: %w", m.at, m.Name, err)
	}
	after, err = m.apply(string(b))
	if err == nil && after == string(b) {
		err = fmt.Errorf("%s: mutant %s changes nothing", m.at, m.Name)
	}
	return string(b), after, err
}
