package program_test

import (
	"bytes"
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

// Decode reads what Encode writes.
func TestEncode(t *testing.T) {
	for _, s := range program.Seeds() {
		p := program.Decode(s.Bytes)
		settings := []byte(nil)
		if len(s.Bytes) > 0 {
			settings = s.Bytes[1 : 1+len(p.Sessions)]
		} else {
			continue
		}
		if b := program.Encode(p.Calm, settings, p.Ops...); !bytes.Equal(b, s.Bytes) {
			t.Errorf("%s: %q became %q when it was decoded and encoded again", s.Name, s.Bytes, b)
		}
	}
}

// The seeds use every verb.
func TestSeedsHaveEveryVerb(t *testing.T) {
	seen := make(map[program.Verb]bool)
	for _, s := range program.Seeds() {
		for _, o := range program.Decode(s.Bytes).Ops {
			seen[o.Verb] = true
		}
	}
	for v := program.Lock; v <= program.Step; v++ {
		if !seen[v] {
			t.Errorf("no seed has %v", v)
		}
	}
}
