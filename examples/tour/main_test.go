package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
)

// The tour is the first program that people run. Its output shows one holder at a time: a worker holds the key only
// after the previous holder has released it, has lost it or was killed.
func TestTourShowsOneHolderAtATime(t *testing.T) {
	events := regexp.MustCompile(`(anna|bert|carl) (HOLDS|LEADS|unlocks|resigns|has lost it|is KILLED)`)
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			stdout := os.Stdout
			os.Stdout = said
			synctest.Test(t, func(t *testing.T) { err = tour(newGoroutines(), p) })
			os.Stdout = stdout
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(said.Name())
			if err != nil {
				t.Fatal(err)
			}
			holder, turns := "", 0
			for _, e := range events.FindAllStringSubmatch(string(text), -1) {
				switch worker, what := e[1], e[2]; {
				case what == "HOLDS" || what == "LEADS":
					if turns++; holder != "" {
						t.Errorf("%s holds the key while %s does", worker, holder)
					}
					holder = worker
				case worker != holder:
					t.Errorf("%s %s, but the holder is %q", worker, what, holder)
				default:
					holder = ""
				}
			}
			if turns != p.turns || t.Failed() {
				t.Errorf("%d turns, want %d; the tour printed\n%s", turns, p.turns, text)
			}
		})
	}
}
