package main

import (
	"regexp"
	"strings"
)

// A verdict is the result of running the tests of a mutant.
type verdict string

const (
	caught    verdict = "caught"      // a test failed its own checks
	timedOut  verdict = "caught late" // a test did not finish
	sometimes verdict = "sometimes"   // a test failed, but had passed in an earlier run
	survived  verdict = "SURVIVED"    // the tests passed in every run
	notBuilt  verdict = "NOT BUILT"   // the mutant or its tests did not compile
	noTests   verdict = "NO TESTS"    // the pattern matches no test
	crashed   verdict = "CRASHED"     // the code panicked, for example on a nil pointer, which any test would notice
	unclear   verdict = "UNCLEAR"     // go test itself failed
	unapplied verdict = "NOT APPLIED" // the text to be changed does not occur exactly once
)

// good reports whether the mutant was caught.
func (v verdict) good() bool { return v == caught || v == timedOut || v == sometimes }

var (
	panics  = regexp.MustCompile(`(?m)^panic: (.*)`)
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crashes = regexp.MustCompile(`(?m)^(panic: runtime error: |fatal error: (concurrent map|unexpected signal|sync: )|\[signal )`)
)

// judge reads the output of go test. It also returns the name of the first test that failed, or the message of a panic
// outside of a test.
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
	// A test helper panicked, for example because nobody was elected in time.
	if m := panics.FindStringSubmatch(output); m != nil {
		return caught, m[1]
	}
	return unclear, ""
}
