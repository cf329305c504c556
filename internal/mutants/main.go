package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
)

func main() {
	only := flag.String("run", "", "only mutants whose name matches this `regexp`")
	part := flag.String("part", "1/1", "only the `k/n`th part of the mutants that -run matches: every n-th, starting at the k-th")
	list := flag.Bool("list", false, "list the mutants and don't run them")
	verbose := flag.Bool("v", false, "show what the tests print")
	workers := flag.Int("p", runtime.NumCPU(), "try `n` mutants at once")
	flag.Parse()
	if err := run(*only, *part, *list, *verbose, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only, part string, list, verbose bool, workers int) error {
	re, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return fmt.Errorf("-part is %q; it must be k/n with 1 ≤ k ≤ n, such as 2/3", part)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	all, err := load(filepath.Join(root, "internal", "mutants", "testdata"))
	if err != nil {
		return err
	}
	var chosen []mutant
	matched := 0
	for _, m := range all {
		if !re.MatchString(m.Name) {
			continue
		}
		if matched%n == k-1 {
			chosen = append(chosen, m)
		}
		matched++
	}
	switch {
	case len(chosen) == 0:
		return fmt.Errorf("no mutant of part %s has a name that matches %q", part, only)
	case list:
		return show(chosen)
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := (&lab{root: root, verbose: verbose}).baseline(chosen); err != nil {
		return err
	}
	next := make(chan mutant)
	go func() {
		defer close(next)
		for _, m := range chosen {
			next <- m
		}
	}()
	var chance atomic.Int64
	var mu sync.Mutex
	var bad []string // names of the mutants that were not caught
	var wg sync.WaitGroup
	for i := range max(1, workers) {
		l := &lab{root, filepath.Join(dir, fmt.Sprint(i)), verbose}
		if err := os.Mkdir(l.dir, 0o700); err != nil {
			return err
		}
		wg.Go(func() {
			for m := range next {
				switch v := l.try(m); {
				case v == sometimes:
					chance.Add(1)
				case !v.good():
					mu.Lock()
					bad = append(bad, m.Name)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d mutants were not caught: %s (each that survived shows that a test is missing)", len(bad), len(chosen), strings.Join(bad, ", "))
	}
	fmt.Printf("all %d mutants were caught\n", len(chosen))
	if n := chance.Load(); n > 0 {
		fmt.Printf("%d of them only sometimes: their tests depend on chance and should not\n", n)
	}
	return nil
}

// moduleRoot returns the directory of the current module.
func moduleRoot() (string, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(gomod))), nil
}

func show(list []mutant) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range list {
		fmt.Fprintf(w, "%s\t%s\t%s %s\n", m.Name, m.Breaks, m.Pkg, m.Test)
	}
	return errors.Join(w.Flush())
}
