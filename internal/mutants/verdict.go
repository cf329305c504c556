package main

import (
	"regexp"
	"strings"
)

// A verdict is what a run of tests says of a mutant.
type verdict string

const (
	caught    verdict = "caught"      // a test failed by its own judgement
	timedOut  verdict = "caught late" // a test did not end
	sometimes verdict = "sometimes"   // a test failed, after it had passed
	survived  verdict = "SURVIVED"    // the tests passed, in every run
	notBuilt  verdict = "NOT BUILT"   // it is no Go, or the tests are not
	noTests   verdict = "NO TESTS"    // the pattern names none
	crashed   verdict = "CRASHED"     // of a nil pointer, say: anything would notice
	unclear   verdict = "UNCLEAR"     // go test failed in a way of its own
	unapplied verdict = "NOT APPLIED" // the text to be changed is not there once
)

// good reports whether the mutant is accounted for.
func (v verdict) good() bool { return v == caught || v == timedOut || v == sometimes }

var (
	panics  = regexp.MustCompile(`(?m)^panic: (.*)`)
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crashes = regexp.MustCompile(`(?m)^(panic: runtime error: |fatal error: (concurrent map|unexpected signal|sync: )|\[signal )`)
)

// judge reads the output of go test, which passed or not, and returns the name of
// the first test that failed.
func judge(output string, passed bool) (v verdict, test string) {
	switch {
	case strings.Contains(output, "[no tests to run]"):
		return noTests, ""
	case passed:
		return survived, ""
	case strings.Contains(output, "[build failed]"), strings.Contains(output, "[setup failed]"):
		return notBuilt, ""
	case crashes.MatchString(output):
		return crashed, ""
	}
	if m := failed.FindStringSubmatch(output); m != nil {
		test = m[1]
	}
	switch {
	case strings.Contains(output, "panic: test timed out after"):
		return timedOut, test
	case test != "":
		return caught, test
	}
	// A helper of the tests has panicked, as when nobody is elected in time.
	if m := panics.FindStringSubmatch(output); m != nil {
		return caught, m[1]
	}
	return unclear, ""
}
