package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// A deployment holds the fields that these tests read from the manifest in examples/singletons.
type deployment struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Spec       struct {
		Replicas int
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers                    []container
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
			}
		}
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   map[string]map[string]string `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   probe `yaml:"startupProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
}

type probe struct {
	HTTPGet                       struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds                 int                         `yaml:"periodSeconds"`
	TimeoutSeconds                int                         `yaml:"timeoutSeconds"`   // default 1
	FailureThreshold              int                         `yaml:"failureThreshold"` // default 3
	TerminationGracePeriodSeconds int                         `yaml:"terminationGracePeriodSeconds"`
}

// manifest reads the manifest in examples/singletons.
func manifest(t testing.TB) (d deployment) {
	t.Helper()
	text, err := os.ReadFile("../examples/singletons/singletons.yaml")
	noErr(t, err)
	var whole map[string]any // decoding into a map fails on any duplicate key
	noErr(t, yaml.Unmarshal(text, &whole))
	noErr(t, yaml.Unmarshal(text, &d))
	return d
}

// container returns the pod's only container.
func (d deployment) container(t testing.TB) container {
	t.Helper()
	if n := len(d.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers, want 1", n)
	}
	return d.Spec.Template.Spec.Containers[0]
}

// The manifest sets the variables that the program reads. Its probes use the program's port, and its periods leave
// enough time for a shutdown.
func TestExampleManifest(t *testing.T) {
	d := manifest(t)
	c := d.container(t)
	if d.APIVersion != "apps/v1" || d.Kind != "Deployment" || d.Spec.Replicas != 3 {
		t.Errorf("%s %s with %d replicas, want a Deployment with three", d.APIVersion, d.Kind, d.Spec.Replicas)
	}
	labels := d.Spec.Template.Metadata.Labels
	if !maps.Equal(d.Spec.Selector.MatchLabels, labels) || len(labels) == 0 {
		t.Errorf("the selector is %v, but the pods' labels are %v", d.Spec.Selector.MatchLabels, labels)
	}

	// Environment: the manifest sets exactly the variables that the program reads with os.Getenv.
	var given []string
	for _, e := range c.Env {
		given = append(given, e.Name)
		if e.Name == "MONGODB_URI" && e.ValueFrom["secretKeyRef"]["key"] == "" {
			t.Errorf("MONGODB_URI is not from a secret: %+v", e)
		}
	}
	slices.Sort(given)
	if read := environment(t, "../examples/singletons"); !slices.Equal(given, read) {
		t.Errorf("the manifest sets %q, the program reads %q", given, read)
	}

	// Probes: they use the port on which the manifest's arguments make the program listen.
	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, probe := range map[string]probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		listen := fmt.Sprintf("-listen=:%d", ports[probe.HTTPGet.Port])
		if !slices.Contains(c.Args, listen) || probe.HTTPGet.Path == "" {
			t.Errorf("%s probe: GET %q on port %q, the arguments are %q", name, probe.HTTPGet.Path, probe.HTTPGet.Port, c.Args)
		}
	}
	// A single slow answer must not end a container; the process may simply have had no CPU time.
	for name, probe := range map[string]probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if probe.TimeoutSeconds < 5 || probe.FailureThreshold < 2 {
			t.Errorf("%s probe: time-out %d s, failure threshold %d; want at least 5 s, and 2", name, probe.TimeoutSeconds, probe.FailureThreshold)
		}
	}
	if c.ReadinessProbe.HTTPGet.Path == c.LivenessProbe.HTTPGet.Path {
		t.Errorf("both probes are GET %s: an unreachable database would restart every pod", c.LivenessProbe.HTTPGet.Path)
	}

	// A job that hangs may keep running after its lease has ended, while another pod already runs the
	// same job. So the probe must find such a job soon, and its pod must be killed without a grace
	// period.
	if p := c.LivenessProbe; p.PeriodSeconds*p.FailureThreshold > 5 {
		t.Errorf("the liveness probe takes %d s to find a job that keeps running, want at most 5", p.PeriodSeconds*p.FailureThreshold)
	}
	if got := c.LivenessProbe.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("the grace period after a failed liveness probe is %d s, want 1; 0 means the pod's", got)
	}

	// A clean shutdown can take as long as the grace (TTL/10) plus the wait for a release (TTL/3).
	var ttl time.Duration
	for _, arg := range c.Args {
		if text, ok := strings.CutPrefix(arg, "-ttl="); ok {
			ttl, _ = time.ParseDuration(text)
		}
	}
	if end := time.Duration(d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; ttl == 0 || end < ttl/10+ttl/3 {
		t.Errorf("the pod has %v to shut down, too short for a TTL of %v", end, ttl)
	}
}

// environment returns the sorted names of all environment variables that the packages read.
func environment(t testing.TB, folders ...string) (names []string) {
	t.Helper()
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		noErr(t, err)
		for _, path := range paths {
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			noErr(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Getenv" || f.Sel.Name == "LookupEnv") {
					name, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
					noErr(t, err)
					names = append(names, name)
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
