package integration_test

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/spawn"
)

// A pod is a replica in the deployment, run as a process on this host.
type pod struct {
	*example
	address string // of its probes
}

// pods starts a process for each replica in the manifest. Each process gets exactly the manifest's arguments and
// environment, except that the TTL is short and the probes use a free port of this host.
func (r *room) pods(path string, d deployment) (pods []*pod) {
	r.t.Helper()
	c := d.container(r.t)
	for i := range d.Spec.Replicas {
		p := &pod{address: freeAddress(r.t)}
		name := fmt.Sprintf("pod-%d", i)
		cmd := exec.Command(path, "-db", r.DB)
		for _, arg := range c.Args {
			switch flag, _, _ := strings.Cut(arg, "="); flag {
			case "-ttl":
				arg = "-ttl=8s"
			case "-listen":
				arg = "-listen=" + p.address
			}
			cmd.Args = append(cmd.Args, arg)
		}
		cmd.Env = []string{} // not nil, which would mean this process's environment
		for _, e := range c.Env {
			cmd.Env = append(cmd.Env, e.Name+"="+map[string]string{"MONGODB_URI": r.URI, "POD_NAME": name}[e.Name])
		}
		p.example = startExample(r.t, name, cmd)
		pods = append(pods, p)
	}
	return pods
}

// freeAddress returns a local address on which no process listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	ports, err := spawn.FreePorts(1)
	noErr(t, err)
	return "127.0.0.1:" + ports[0]
}

// get sends a GET to the pod, and returns the status, or 0 if there is no answer.
func (p *pod) get(path string) (status int) {
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Get("http://" + p.address + path)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// A stint is one run of a singleton on a pod.
type stint struct {
	pod        string
	term       int64
	begin, end time.Time // end is zero while it runs
}

// stints returns the stints of each singleton in the order in which they began. A stint that
// was cut short ends when its pod was killed.
func stints(pods []*pod, killed map[*pod]time.Time) map[string][]stint {
	all := map[string][]stint{}
	for _, p := range pods {
		ends := map[string]time.Time{}
		key := func(l logLine) string { return fmt.Sprint(l.Singleton, " ", l.Term) }
		for _, l := range p.said("ends") {
			ends[key(l)] = l.Time
		}
		for _, l := range p.said("begins") {
			end, ended := ends[key(l)]
			if !ended {
				end = killed[p]
			}
			all[l.Singleton] = append(all[l.Singleton], stint{p.name, l.Term, l.Time, end})
		}
	}
	for _, one := range all {
		slices.SortFunc(one, func(a, b stint) int { return a.begin.Compare(b.begin) })
	}
	return all
}

// running(all) returns, for each singleton, the pod on which it runs, or "" if it runs on no pod or
// on several.
func running(all map[string][]stint) map[string]string {
	at := map[string]string{}
	for name, one := range all {
		now := slices.DeleteFunc(slices.Clone(one), func(s stint) bool { return !s.end.IsZero() })
		at[name] = ""
		if len(now) == 1 {
			at[name] = now[0].pod
		}
	}
	return at
}

// Each singleton runs on one pod at a time, and the singletons spread over the pods. If a pod
// is killed or gets SIGTERM, its singletons move to the other pods. The pods serve the manifest's
// probes.
func exampleSingletons(t *testing.T, r *room, path string) {
	const singletons = 3
	d := manifest(t)
	c := d.container(t)
	pods := r.pods(path, d)
	for _, p := range pods {
		for _, probe := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			eventually(t, p.name+" answers GET "+probe.HTTPGet.Path, func() bool { return p.get(probe.HTTPGet.Path) == http.StatusOK })
		}
		if got := p.get("/"); got != http.StatusNotFound {
			t.Errorf("%s answers GET / with %d", p.name, got)
		}
	}

	killed := map[*pod]time.Time{}
	on := func(what string, pods int, all []*pod) (at map[string]string) {
		t.Helper()
		eventually(t, what, func() bool {
			at = running(stints(all, killed))
			return len(at) == singletons && !slices.Contains(slices.Collect(maps.Values(at)), "") &&
				len(slices.Compact(slices.Sorted(maps.Values(at)))) == pods
		})
		return at
	}
	on("each singleton runs on a pod of its own", 3, pods)
	pods[0].kill()
	killed[pods[0]] = time.Now()
	on("the singletons run on the remaining two pods", 2, pods)
	begin := time.Now()
	pods[1].signal(syscall.SIGTERM)
	if err := pods[1].ended(time.Duration(d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second); err != nil {
		t.Errorf("%s, after SIGTERM: %v", pods[1].name, err)
	}
	took := time.Since(begin)
	at := on("the singletons run on the remaining pod", 1, pods)
	pods[2].signal(syscall.SIGTERM)
	if err := pods[2].ended(time.Minute); err != nil {
		t.Errorf("%s, after SIGTERM: %v", pods[2].name, err)
	}

	n := 0
	for name, one := range stints(pods, killed) {
		n += len(one)
		for i, s := range one[1:] {
			if last := one[i]; s.begin.Before(last.end) || last.end.IsZero() || s.term <= last.term {
				t.Errorf("%s: %+v overlaps with %+v", name, s, last)
			}
		}
		if at[name] != pods[2].name || one[len(one)-1].end.IsZero() {
			t.Errorf("%s: its last run, on %s, did not end: %+v", name, at[name], one[len(one)-1])
		}
	}
	lab.Note(t, "%d singletons ran %d times; a pod ended in %v", singletons, n, took.Round(time.Millisecond))
}
