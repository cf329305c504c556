package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/testkit"
)

// support.md lists the servers that the tests ran on. For each of these servers it has a link to a log that names the
// server.
func TestRunLiveIsLogged(t *testing.T) {
	_, section, ok := strings.Cut(pages(t)["support.md"], "\n**Run live.**")
	if !ok {
		t.Fatal("support.md has no paragraph about the servers that the tests ran on")
	}
	section, _, _ = strings.Cut(section, "\n**")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\|$")
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	n := 0
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		logs := link.FindAllStringSubmatch(m[2], -1)
		if len(logs) == 0 {
			t.Errorf("%s has no log", m[1])
		}
		for _, l := range logs {
			n++
			text, err := os.ReadFile(l[1])
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(text), m[1]) {
				t.Errorf("%s does not name %q", l[1], m[1])
			}
		}
	}
	if n < 4 {
		t.Errorf("found %d logs, want at least 4", n)
	}
}

// leasehold doctor names the servers that support.md lists as run live, and no others.
func TestDoctorKnowsTheServersRunLive(t *testing.T) {
	_, section, _ := strings.Cut(pages(t)["support.md"], "\n**Run live.**")
	section, _, _ = strings.Cut(section, "\n**")
	var want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`,]+), ").FindAllStringSubmatch(section, -1) {
		want = append(want, m[1])
	}
	source, err := os.ReadFile("../cmd/leasehold/doctor_checks.go")
	testkit.NoErr(t, err)
	list := regexp.MustCompile(`func runLive\(\).*return \[\]string\{(.*)\} \}`).FindStringSubmatch(string(source))
	if list == nil {
		t.Fatal("doctor_checks.go has no function runLive")
	}
	var got []string
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(list[1], -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("leasehold doctor knows %q, want %q", got, want)
	}
}

// CI and Dependabot cover every module, and docs/releasing.md names every published module. Each
// published module's directory has a README.
func TestModulesAreListed(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", name))
		testkit.NoErr(t, err)
		return string(text)
	}
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^\t\.(?:/(\S+))?$`).FindAllStringSubmatch(read("go.work"), -1) {
		modules = append(modules, m[1])
	}
	slices.Sort(modules)
	if len(modules) < 5 || modules[0] != "" {
		t.Fatalf("go.work uses %q, want the root and others", modules)
	}
	// words returns the modules that a file lists between the texts begin and end, sorted. The root module is "".
	words := func(name, begin, end string) []string {
		_, rest, ok := strings.Cut(read(name), begin)
		if !ok {
			t.Fatalf("%s has no %q", name, begin)
		}
		rest, _, _ = strings.Cut(rest, end)
		var all []string
		for w := range strings.FieldsSeq(rest) {
			if w = strings.Trim(w, "/."); w != "-" {
				all = append(all, w)
			}
		}
		slices.Sort(all)
		return all
	}
	published := slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return m == "integration" || m == "bench" })
	for _, list := range []struct {
		name, begin, end string
		want             []string
	}{
		{".ci/run", "\nmodules=(", ")", modules},
		{".ci/run", ".ci/release --quick\n\nfor m in ", ";", published[1:]},
		{".ci/modules", "\npublished=(", ")", published},
		{".github/dependabot.yml", "\n    directories:\n", "    schedule:", modules},
		{"docs/releasing.md", "       for m in ", ";", published[1:]},
		{"docs/releasing.md", `       for m in "" `, ";", published[1:]},
	} {
		if got := words(list.name, list.begin, list.end); !slices.Equal(got, list.want) {
			t.Errorf("%s, after %q: %q, want %q", list.name, strings.TrimSpace(list.begin), got, list.want)
		}
	}
	// pkg.go.dev and GitHub show the README in a module's directory. The README must say what the
	// module is and how to get it. Unless the module is a command, the README must also contain a Go
	// example. TestCodeIsFromExamples compiles the example.
	for _, m := range published[1:] {
		text := pages(t)["../"+m+"/README.md"]
		if !strings.Contains(text, "github.com/leasehold-go/leasehold/"+m) {
			t.Errorf("%s has no README.md that says how to get the module", m)
		}
		if !strings.HasPrefix(m, "cmd/") && !strings.Contains(text, "\n```go\n") {
			t.Errorf("%s has no README.md with an example", m)
		}
		if n := strings.Count(text, "\n"); n > 50 {
			t.Errorf("%s/README.md has %d lines, which does not fit on a screen", m, n)
		}
	}
}

// The README stays short.
func TestLengthOfTheReadme(t *testing.T) {
	if n := strings.Count(pages(t)["../README.md"], "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want at most 150", n)
	}
}

// The pages that everybody reads stay short, and so do all pages together. Details belong in the package docs.
func TestLengthOfPages(t *testing.T) {
	for name, most := range map[string]int{"guarantees.md": 2500, "coming-from.md": 3500, "other-languages.md": 700} {
		if n := len(strings.Fields(pages(t)[name])); n > most {
			t.Errorf("%s has %d words, want at most %d", name, n, most)
		}
	}
	all := 0
	for _, text := range pages(t) {
		all += len(strings.Fields(text))
	}
	if all > 28_000 {
		t.Errorf("all pages together have %d words, want at most 28,000: say it once, or in a package's comment", all)
	}
}
