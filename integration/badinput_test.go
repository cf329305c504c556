package integration_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Bad input of leasehold: one clear line, a status of its own, and nothing left behind
// in the store.
func TestCommandBadInput(t *testing.T) {
	bin := leasehold.path(t)
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		good := []string{"--uri", r.URI, "--db", r.DB}
		nobody := []string{"--uri", "mongodb://127.0.0.1:9/?directConnection=true", "--connect-timeout", "500ms"}
		stranger := []string{"--uri", "mongodb://nobody:wrong@" + r.Primary(t) + "/?directConnection=true", "--db", r.DB}
		for _, c := range []struct {
			name   string
			target []string
			args   []string
			status int
			want   string
		}{
			{"unknown command", good, []string{"rum"}, 111, `unknown command "rum"; did you mean run?`},
			{"unknown flag", good, []string{"run", "--tries", "k", "--", "true"}, 111, "leasehold run has no flag --tries; see leasehold run --help"},
			{"no dashes", good, []string{"run", "k", "true"}, 111, "there is no -- before the command"},
			{"nothing after the dashes", good, []string{"elect", "k", "--"}, 111, "there is no command after --"},
			{"short TTL", good, []string{"run", "--ttl", "1ms", "k", "--", "true"}, 111, "dsync: TTL is 1ms; it must be at least 1s"},
			{"long grace", good, []string{"run", "--ttl", "2s", "--grace", "2s", "k", "--", "true"}, 111, "--grace 2s is too long for --ttl 2s"},
			{"no such command", good, []string{"run", "k", "--", "no-such-command"}, 127, `exec: "no-such-command"`},
			{"bad connection string", []string{"--uri", "localhost:27017"}, []string{"run", "k", "--", "true"}, 111, "the connection string of --uri or MONGODB_URI can't be used"},
			{"no server named", nil, []string{"run", "k", "--", "true"}, 111, "no server is given; use --uri mongodb://…, or set MONGODB_URI"},
			{"unreachable", nobody, []string{"run", "k", "--", "true"}, 115, "no server answers at 127.0.0.1:9 within 500ms"},
			{"unreachable for elect", nobody, []string{"elect", "k", "--", "true"}, 115, "no server answers at 127.0.0.1:9 within 500ms"},
			{"wrong password", stranger, []string{"run", "k", "--", "true"}, 116, "the server refuses"},
		} {
			var out, bad bytes.Buffer
			cmd := exec.Command(bin, append(append([]string{c.args[0]}, c.target...), c.args[1:]...)...)
			cmd.Env = append(os.Environ(), "MONGODB_URI=")
			cmd.Stdout, cmd.Stderr = &out, &bad
			cmd.Run() // its status says it
			if got := cmd.ProcessState.ExitCode(); got != c.status || out.Len() > 0 ||
				!strings.HasPrefix(bad.String(), "leasehold: "+c.want) || strings.Count(bad.String(), "\n") != 1 {
				t.Errorf("%s: status %d, %q, %q, want status %d and one line that begins with %q", c.name, got, &out, &bad, c.status, "leasehold: "+c.want)
			}
		}
		if n, err := r.raw().CountDocuments(t.Context(), bson.D{}); n != 0 || err != nil {
			t.Errorf("%d records were left behind, %v", n, err)
		}
	})
}
