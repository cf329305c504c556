package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A draw is a run of random mutants, made by classic operators at randomly drawn places.
type draw struct {
	n        int
	seed     uint64
	workers  int
	verbose  bool
	patterns []string // package patterns
	out      io.Writer
}

func randomMain(args []string) error {
	f := flag.NewFlagSet("random", flag.ExitOnError)
	d := draw{out: os.Stdout}
	f.IntVar(&d.n, "n", 50, "try `n` mutants")
	f.Uint64Var(&d.seed, "seed", 0, "draw the places with this `number` as the seed; 0: a random seed")
	f.IntVar(&d.workers, "p", runtime.NumCPU(), "try `n` mutants at once, each in its own copy of the module")
	f.BoolVar(&d.verbose, "v", false, "show what the tests print")
	f.Parse(args)
	d.patterns = f.Args()
	if len(d.patterns) == 0 {
		d.patterns = []string{"./dsync/...", "./internal/engine", "./leader/...", "./clockcheck/..."}
	}
	if d.seed == 0 {
		d.seed = 1 + rand.Uint64N(1e6)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	return d.run(root)
}

// run tries the mutants, and reports those that survived and the share that was caught.
func (d *draw) run(root string) error {
	labs, remove, err := newLabs(root, d.workers, 1, d.verbose)
	if err != nil {
		return err
	}
	defer remove()
	all, tests, err := d.places(&labs[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "seed %d: %d of %d changes in %s\n", d.seed, d.n, len(all), strings.Join(d.patterns, " "))
	r := rand.New(rand.NewPCG(d.seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	// Places are tried in the order drawn. For each mutant that does not compile, one more place is tried. So a
	// seed gives the same mutants regardless of how many are tried at once.
	var (
		mu                    sync.Mutex
		changed               = sync.NewCond(&mu)
		next, trying, no, bad int
		built                 int
		survivors             []string
		broken                error
	)
	take := func() (change, bool) {
		mu.Lock()
		defer mu.Unlock()
		for built+trying >= d.n && trying > 0 {
			changed.Wait()
		}
		if built >= d.n || next == len(all) || broken != nil {
			return change{}, false
		}
		next++
		trying++
		return all[next-1], true
	}
	var wg sync.WaitGroup
	for _, l := range labs {
		wg.Go(func() {
			for {
				c, ok := take()
				if !ok {
					return
				}
				start := time.Now()
				v, by, diff, err := l.tryChange(c, tests[filepath.ToSlash(filepath.Dir(c.file))])
				mu.Lock()
				trying--
				switch {
				case err != nil:
					broken = cmp.Or(broken, err)
				case v == notBuilt:
					no++
				case v == survived:
					built++
					bad++
					survivors = append(survivors, diff)
				default:
					built++
				}
				if err == nil && v != notBuilt {
					fmt.Fprintf(d.out, "%-12s %-32s %-28s %5.1f s  %s\n", v, fmt.Sprintf("%s:%d", c.file, c.line), c.what, time.Since(start).Seconds(), by)
				}
				changed.Broadcast()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if broken != nil {
		return broken
	}
	if built == 0 {
		return errors.New("no change compiles")
	}
	slices.Sort(survivors)
	for _, s := range survivors {
		fmt.Fprintf(d.out, "\n%s", s)
	}
	fmt.Fprintf(d.out, "\nseed %d: caught %d of %d mutants, %.1f %% (%d more did not compile)\n", d.seed, built-bad, built, 100*float64(built-bad)/float64(built), no)
	return nil
}

// A suite is the tests of one package, with their time limit.
type suite struct {
	pkg     string
	timeout time.Duration
}

// places returns all changes to the files of the packages and, for each directory, the suites that may notice a
// change in it: first its own suite, then, fastest first, the suites of the packages that depend on it. A
// package's own tests must pass in the unchanged copy.
func (d *draw) places(l *lab) (all []change, tests map[string][]suite, err error) {
	packages, err := l.list(d.patterns...)
	if err != nil {
		return nil, nil, err
	}
	everything, err := l.list("-test", "./...")
	if err != nil {
		return nil, nil, err
	}
	took := make(map[string]time.Duration)
	tests = make(map[string][]suite)
	for _, p := range packages {
		rel, err := filepath.Rel(l.dir, p.Dir)
		if err != nil || p.Name == "main" {
			continue
		}
		rel = filepath.ToSlash(rel)
		for _, f := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				return nil, nil, err
			}
			found, err := changes(rel+"/"+f, string(src))
			if err != nil {
				return nil, nil, err
			}
			all = append(all, found...)
		}
		for _, t := range everything {
			pkg, isTest := strings.CutSuffix(t.ImportPath, ".test")
			if !isTest || !t.dependsOn(p.ImportPath) {
				continue
			}
			if _, ok := took[pkg]; !ok {
				start := time.Now()
				output, passed := l.suite(pkg, 10*time.Minute)
				took[pkg] = time.Since(start)
				switch {
				case passed:
				case pkg == p.ImportPath:
					return nil, nil, fmt.Errorf("the tests of %s fail even without a change:\n%s", pkg, tail(output, 40))
				default: // for example because the test reads files that are not copied
					took[pkg] = 0
					fmt.Fprintf(d.out, "left out: the tests of %s, which fail even without a change\n", pkg)
				}
			}
			if took[pkg] > 0 {
				tests[rel] = append(tests[rel], suite{pkg, 30*time.Second + 5*took[pkg]})
			}
		}
		slices.SortFunc(tests[rel], func(a, b suite) int {
			switch p.ImportPath {
			case a.pkg:
				return -1
			case b.pkg:
				return 1
			}
			return cmp.Or(cmp.Compare(took[a.pkg], took[b.pkg]), strings.Compare(a.pkg, b.pkg))
		})
	}
	return all, tests, nil
}

// A listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir, Name string
	GoFiles, Deps         []string
}

func (p *listed) dependsOn(path string) bool {
	return slices.ContainsFunc(p.Deps, func(d string) bool {
		d, _, _ = strings.Cut(d, " ") // "p [q.test]" is p as compiled for the tests of q
		return d == path
	})
}

func (l *lab) list(args ...string) (all []listed, err error) {
	output, ok := l.run(append([]string{"list", "-json=ImportPath,Dir,Name,GoFiles,Deps"}, args...)...)
	if !ok {
		return nil, fmt.Errorf("go list %s: %s", strings.Join(args, " "), output)
	}
	for r := json.NewDecoder(strings.NewReader(output)); ; {
		var p listed
		switch err := r.Decode(&p); err {
		case nil:
			all = append(all, p)
		case io.EOF:
			return all, nil
		default:
			return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
		}
	}
}

// suite runs all tests of a package. It limits their memory, because a mutant may contain an endless loop that
// allocates.
func (l *lab) suite(pkg string, timeout time.Duration) (output string, passed bool) {
	const limited = `sh -c 'ulimit -v 8000000; exec "$0" "$@"'` // KiB of address space
	return l.test(pkg, ".", timeout.String(), "-failfast", "-exec", limited)
}

// tryChange makes the change, runs the tests until one fails, and undoes the change. by is the failed test.
func (l *lab) tryChange(c change, tests []suite) (v verdict, by, diff string, err error) {
	file := filepath.Join(l.dir, filepath.FromSlash(c.file))
	b, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	before := string(b)
	if err := os.WriteFile(file, []byte(before[:c.start]+c.text+before[c.end:]), 0o644); err != nil {
		return "", "", "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, b, 0o644)) }()
	for _, t := range tests {
		output, passed := l.suite(t.pkg, t.timeout)
		if v, by = judge(output, passed); v != survived && v != noTests {
			return v, by, "", nil
		}
	}
	return survived, "", c.diff(before), nil
}

// diff shows the change in the format of the mutants' files, with its place.
func (c *change) diff(src string) string {
	start := strings.LastIndexByte(src[:c.start], '\n') + 1
	end := len(src)
	if i := strings.IndexByte(src[c.end:], '\n'); i >= 0 {
		end = c.end + i
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s:%d: %s\nfile: %s\n", c.file, c.line, c.what, c.file)
	lines := func(sign, text string) {
		for line := range strings.Lines(text) {
			fmt.Fprintf(&b, "%s %s\n", sign, strings.TrimRight(line, "\n"))
		}
	}
	lines("-", src[start:end])
	lines("+", src[start:c.start]+c.text+src[c.end:end])
	return b.String()
}
