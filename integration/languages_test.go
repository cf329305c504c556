package integration_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.yaml.in/yaml/v3"
)

// The rule that docs/other-languages.md has for drivers in other languages refuses what package fence refuses, and each
// refuses what comes after the other's writes.
func TestFenceRuleOfOtherLanguages(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/other-languages.md")
	noErr(t, err)
	call := regexp.MustCompile(`(?m)^orders\.update_one\((\{.*\}), (\{"\$set": .*\})\)$`).FindSubmatch(page)
	if call == nil {
		t.Fatal("docs/other-languages.md has no orders.update_one(…)")
	}
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		coll, orders := r.orders()
		if _, err := coll.InsertOne(t.Context(), d("_id", 7)); err != nil {
			t.Fatal(err)
		}
		// write writes with a token as the page says, and reports whether the document matched.
		write := func(token int64) bool {
			var parts [2]bson.D
			for i, text := range call[1:] {
				json := strings.NewReplacer("hold.token", strconv.FormatInt(token, 10), "True", "true").Replace(string(text))
				if err := bson.UnmarshalExtJSON([]byte(json), false, &parts[i]); err != nil {
					t.Fatalf("%v in %s", err, json)
				}
			}
			res, err := coll.UpdateOne(t.Context(), parts[0], parts[1])
			noErr(t, err)
			return res.MatchedCount == 1
		}
		const first = int64(1) << 52
		fenced := func(token int64) error {
			_, err := orders.UpdateOne(t.Context(), token, d("_id", 7), d("$set", d("paid", false)))
			return err
		}
		for _, step := range []struct {
			what string
			ok   bool
			want bool
		}{
			{"a document without a token", write(first), true},
			{"the same token", write(first), true},
			{"an older one", write(first - 1), false},
			{"a newer one", write(first + 2), true},
			{"an older one in Go", fenced(first+1) == nil, false},
			{"a newer one in Go", fenced(first+3) == nil, true},
			{"an older one after that", write(first + 2), false},
		} {
			if step.ok != step.want {
				t.Errorf("%s: written: %t, want %t", step.what, step.ok, step.want)
			}
		}
		if err := fenced(first); !errors.Is(err, fence.ErrStale) {
			t.Errorf("in Go: %v, want ErrStale", err)
		}
	})
}

// In the manifest of the sidecar, the worker finds the agent at a socket that only they can open, the agent ends after
// it and has time to, and all flags exist.
func TestSidecarManifest(t *testing.T) {
	text, err := os.ReadFile("../examples/languages/sidecar.yaml")
	noErr(t, err)
	var whole map[string]any // decoding into a map fails on any duplicate key
	noErr(t, yaml.Unmarshal(text, &whole))
	type container struct {
		Name, RestartPolicy string
		Args                []string
		Env                 []struct {
			Name, Value string
			ValueFrom   map[string]map[string]string `yaml:"valueFrom"`
		}
		Mounts []struct {
			Name, MountPath string
		}
		Security struct{ RunAsUser int }
	}
	containers := func(list any) (all []container) {
		for _, one := range list.([]any) {
			m := one.(map[string]any)
			c := container{Name: m["name"].(string)}
			c.RestartPolicy, _ = m["restartPolicy"].(string)
			for _, mount := range m["volumeMounts"].([]any) {
				v := mount.(map[string]any)
				c.Mounts = append(c.Mounts, struct{ Name, MountPath string }{v["name"].(string), v["mountPath"].(string)})
			}
			c.Security.RunAsUser = m["securityContext"].(map[string]any)["runAsUser"].(int)
			again, err := yaml.Marshal(map[string]any{"args": m["args"], "env": m["env"]})
			noErr(t, err)
			noErr(t, yaml.Unmarshal(again, &c))
			all = append(all, c)
		}
		return all
	}
	spec := whole["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	agents, workers := containers(spec["initContainers"]), containers(spec["containers"])
	if len(agents) != 1 || len(workers) != 1 {
		t.Fatalf("%d agents and %d workers, want one of each", len(agents), len(workers))
	}
	agent, worker := agents[0], workers[0]
	if agent.RestartPolicy != "Always" {
		t.Error("the agent is not a sidecar: it would end before the worker begins")
	}
	if agent.Security.RunAsUser != worker.Security.RunAsUser || !slices.Contains(agent.Args, "--socket-mode=0600") {
		t.Error("the worker can't open the socket, or others can")
	}
	at := ""
	for _, e := range worker.Env {
		if e.Name == "MONGODB_URI" {
			t.Error("the worker has the database's address")
		}
		if e.Name == "LEASEHOLD_AGENT" {
			at = e.Value
		}
	}
	if at == "" || !slices.Contains(agent.Args, "--listen="+at) {
		t.Errorf("the worker looks for the agent at %q, whose arguments are %q", at, agent.Args)
	}
	for _, c := range []container{agent, worker} {
		if !slices.ContainsFunc(c.Mounts, func(m struct{ Name, MountPath string }) bool {
			return m.Name == "leasehold" && strings.HasPrefix(at, "unix:"+m.MountPath+"/")
		}) {
			t.Errorf("%s does not see the folder of the socket: %+v", c.Name, c.Mounts)
		}
	}
	if e := agent.Env[0]; e.Name != "MONGODB_URI" || e.ValueFrom["secretKeyRef"]["key"] == "" {
		t.Errorf("MONGODB_URI is not from a secret: %+v", e)
	}

	help, err := exec.Command("go", "run", "../cmd/leasehold", "agent", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	var ttl time.Duration
	for _, arg := range agent.Args[1:] {
		flag, value, _ := strings.Cut(arg, "=")
		if !strings.Contains(string(help), flag+" ") {
			t.Errorf("leasehold agent has no flag %s", flag)
		}
		if flag == "--ttl" {
			ttl, _ = time.ParseDuration(value)
		}
	}
	// The worker needs some time, then the agent as much as its session's grace and the release of what is left.
	if end := time.Duration(spec["terminationGracePeriodSeconds"].(int)) * time.Second; ttl == 0 || end < ttl/10+ttl/3+5*time.Second {
		t.Errorf("the pod has %v to shut down, too short for a TTL of %v", end, ttl)
	}
}
