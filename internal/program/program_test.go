package program_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/program"
)

// Any bytes decode to a program of bounded size that can be printed.
func TestDecodeTakesAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p := program.Decode(b)
		if n := len(p.Sessions); n < 2 || n > 4 {
			t.Errorf("%d sessions of %q, want 2 to 4", n, b)
		}
		if len(p.Ops) > program.MaxOps || len(p.Ops) > (n+2)/3 {
			t.Errorf("%d ops of %d bytes", len(p.Ops), n)
		}
		if !strings.Contains(p.String(), "s1 := open(") {
			t.Errorf("the text of %q is %q", b, p)
		}
	}
}

// Random programs use every verb.
func TestRandomHasEveryVerb(t *testing.T) {
	seen := make(map[program.Verb]bool)
	for i := range uint64(100) {
		for _, o := range program.Decode(program.Random(rand.New(rand.NewPCG(1, i)))).Ops {
			seen[o.Verb] = true
		}
	}
	for v := program.Lock; v <= program.FailOver; v++ {
		if !seen[v] {
			t.Errorf("no program has %v", v)
		}
	}
}

// In a noisy program, each session first makes its link noisy.
func TestNoisy(t *testing.T) {
	for i := range uint64(100) {
		p := program.Decode(program.Noisy(rand.New(rand.NewPCG(1, i))))
		if p.Calm {
			t.Errorf("program %d is calm", i)
		}
		for s := range p.Sessions {
			if o := p.Ops[s]; o.Verb != program.Noise || o.Session != s || o.Delay != 0 {
				t.Errorf("program %d: op %d is %v of session %d after %v, want Noise of session %d at once", i, s, o, o.Session, o.Delay, s)
			}
		}
	}
}
