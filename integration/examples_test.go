package integration_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Each program in examples/ runs in several processes that share nothing but a server.
func TestExamples(t *testing.T) {
	folder := buildExamples(t)
	t.Parallel() // called after the build, so that no other test competes with the compiler
	for name, f := range map[string]func(t *testing.T, r *room, path string){
		"cron":       exampleCron,
		"workers":    exampleWorkers,
		"migrate":    exampleMigrate,
		"singletons": exampleSingletons,
		"fenced":     exampleFenced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
				f(t, newRoom(t, s), filepath.Join(folder, name))
			})
		})
	}
}

// Three hosts together run the job once per tick. When a host that has run the job is
// killed, the others continue.
func exampleCron(t *testing.T, r *room, path string) {
	const every, ticks = 4 * time.Second, 3
	var hosts []*example
	for _, name := range []string{"one", "two", "three"} {
		hosts = append(hosts, r.runExample(path, name, "-every", every.String()))
	}
	ran := func(alive []*example) int { return len(saidAll(alive, "runs")) }
	eventually(t, "one host runs the job at a tick, and two do not", func() bool {
		left := map[string]int{}
		for _, l := range saidAll(hosts, "leaves") {
			left[l.Tick]++
		}
		return slices.ContainsFunc(saidAll(hosts, "runs"), func(l logLine) bool { return left[l.Tick] == 2 })
	})
	seen := ran(hosts)
	var runner *example
	eventually(t, "one host runs the job at another tick", func() bool {
		runs := saidAll(hosts, "runs")
		if len(runs) == seen {
			return false
		}
		last := slices.MaxFunc(runs, func(a, b logLine) int { return a.Time.Compare(b.Time) })
		runner = hosts[slices.IndexFunc(hosts, func(p *example) bool { return p.name == last.Process })]
		return true
	})
	runner.kill()
	others := slices.DeleteFunc(slices.Clone(hosts), func(p *example) bool { return p == runner })
	more := ran(others) + ticks
	eventually(t, "the others run the job", func() bool { return ran(others) >= more })
	at := map[string][]string{}
	for _, l := range saidAll(hosts, "runs") {
		at[l.Tick] = append(at[l.Tick], l.Process)
	}
	for tick, by := range at {
		// The killed host may have died before its success was recorded.
		if len(by) != 1 && !slices.Contains(by, runner.name) {
			t.Errorf("at %s the job ran on %q, want one host", tick, by)
		}
	}
	lab.Note(t, "%d ticks, each run once", len(at))
}

// A process is killed during a call. There are never more concurrent calls than the service allows,
// and other processes get the killed process's slots.
func exampleWorkers(t *testing.T, r *room, path string) {
	const size, jobs = 3, 30
	var mu sync.Mutex
	now, most := 0, 0
	calls := map[string]int{} // number of answered calls, by job
	var calling []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		job := q.FormValue("job")
		mu.Lock()
		calling = append(calling, job)
		now++
		most = max(most, now)
		mu.Unlock()
		answered := 1
		select {
		case <-time.After(300 * time.Millisecond):
		case <-q.Context().Done(): // the calling program was killed or stopped
			answered = 0
		}
		mu.Lock()
		now--
		calls[job] += answered
		calling = slices.DeleteFunc(calling, func(c string) bool { return c == job })
		mu.Unlock()
	}))
	defer service.Close()
	urls := func(name string, jobs int) (urls []string) {
		for i := range jobs {
			urls = append(urls, fmt.Sprintf("%s?job=%s/%d", service.URL, name, i))
		}
		return urls
	}
	victim := r.runExample(path, "victim", urls("victim", 1000)...)
	eventually(t, "the victim makes a call", func() bool { return len(victim.said("done")) > 0 })
	var pool []*example
	for _, name := range []string{"one", "two", "three"} {
		pool = append(pool, r.runExample(path, name, urls(name, jobs)...))
	}
	eventually(t, "the victim and others make calls", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(calling, func(job string) bool { return strings.HasPrefix(job, "victim") }) && len(calling) == size
	})
	victim.kill()
	time.Sleep(time.Second) // wait until the service has noticed
	mu.Lock()
	before := most
	most = 0
	mu.Unlock()
	for _, p := range pool {
		if err := p.ended(3 * time.Minute); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if before != size || most != size {
		t.Errorf("up to %d calls at a time, and %d after one process was killed, want %d and %d", before, most, size, size)
	}
	for _, p := range pool {
		for i := range jobs {
			if job := fmt.Sprintf("%s/%d", p.name, i); calls[job] == 0 {
				t.Errorf("job %s was not done", job)
			}
		}
	}
	lab.Note(t, "%d calls by 4 processes, at most %d at a time", len(calls), most)
}

// The migrating process is killed half-way, and one of three others takes over. All three, and a
// process started later, find the migration finished when they start their work.
func exampleMigrate(t *testing.T, r *room, path string) {
	rows := r.Client(t).Database(r.DB).Collection("plans")
	read := func() (all []struct {
		ID    string `bson:"_id"`
		Token int64
	}) {
		cur, err := rows.Find(t.Context(), bson.D{})
		if err == nil {
			err = cur.All(t.Context(), &all)
		}
		noErr(t, err)
		return all
	}
	victim := r.runExample(path, "victim", "-pause", "1h")
	eventually(t, "the first row", func() bool { return len(read()) > 0 })
	var fleet []*example
	for _, name := range []string{"one", "two", "three"} {
		fleet = append(fleet, r.runExample(path, name, "-pause", "100ms"))
	}
	store := r.store()
	eventually(t, "three wait", func() bool { return load(t, store, "migration 7: plans").Waiting == 3 })
	if n := len(saidAll(fleet, "migrates")); n != 0 {
		t.Errorf("%d processes migrate while another does", n)
	}
	victim.kill()
	for _, p := range fleet {
		if err := p.ended(time.Minute); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	if late := r.runExample(path, "late", "-pause", "1h"); late.ended(time.Minute) == nil {
		fleet = append(fleet, late)
	}
	runs := saidAll(fleet, "migrates")
	if len(runs) != 1 {
		t.Fatalf("after the first process %d others migrated, want 1: %+v", len(runs), runs)
	}
	starts := saidAll(fleet, "starts")
	if len(starts) != 4 {
		t.Errorf("%d processes have started, want 4", len(starts))
	}
	for _, l := range starts {
		if want := fmt.Sprintf("6 plans, with token %d", runs[0].Token); l.Migration != want {
			t.Errorf("%s started with %q, want %q", l.Process, l.Migration, want)
		}
	}
	first := victim.said("migrates")[0].Token
	tokens := map[int64]int{}
	for _, row := range read() {
		tokens[row.Token]++
	}
	if tokens[first] != 1 || tokens[runs[0].Token] != 5 || first >= runs[0].Token {
		t.Errorf("rows by token: %v, want 1 with token %d and 5 with the greater token %d", tokens, first, runs[0].Token)
	}
}

// A writer is frozen while it holds the lock, and another writer writes. When the first writer
// continues, its write is refused and leaves no trace.
func exampleFenced(t *testing.T, r *room, path string) {
	anna := r.runExample(path, "anna", "-name", "anna", "-ttl", "2s", "-think", "8s")
	eventually(t, "anna holds", func() bool { return len(anna.said("holds")) == 1 })
	anna.signal(syscall.SIGSTOP)
	bert := r.runExample(path, "bert", "-name", "bert", "-ttl", "6s", "-think", "0s")
	if err := bert.ended(time.Minute); err != nil {
		t.Errorf("bert: %v", err)
	}
	anna.signal(syscall.SIGCONT)
	if err := anna.ended(time.Minute); err == nil {
		t.Error("anna ended without an error")
	}
	held, wrote, refused := anna.said("holds")[0].Token, bert.said("wrote"), anna.said("refused")
	if len(wrote) != 1 || len(refused) != 1 || refused[0].Token != held || held >= wrote[0].Token {
		t.Fatalf("anna's token %d, bert wrote %+v, anna was refused %+v", held, wrote, refused)
	}
	doc := document(t, r.Client(t).Database(r.DB).Collection("accounts"), "account 7")
	if got, want := fmt.Sprint(doc["log"], doc["fence"]), fmt.Sprint("[bert] ", wrote[0].Token); got != want {
		t.Errorf("the document contains %s, want %s", got, want)
	}
}
