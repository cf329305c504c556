package program_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/internal/program"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// runProgram decodes a program from the bytes, and runs it in a bubble with a new store.
func runProgram(t *testing.T, b []byte) {
	t.Helper()
	p := program.Decode(b)
	synctest.Test(t, func(t *testing.T) { program.Run(t, program.InMemory(t, p), p) })
}

// FuzzPrograms runs its input as a program that uses locks, and checks that the promises are kept: see package program.
func FuzzPrograms(f *testing.F) {
	for i := range uint64(100) {
		f.Add(program.Random(rand.New(rand.NewPCG(1, i))))
	}
	f.Fuzz(runProgram)
}

// TestPrograms runs pseudo-random programs that are the same in every run. Without -fuzz, FuzzPrograms runs only 100
// programs.
func TestPrograms(t *testing.T) {
	testkit.Once(t)
	n := testkit.Rounds(1000, 10_000)
	if testing.Short() {
		n = 300
	}
	const seed = 1
	for i := range n {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			runProgram(t, program.Random(rand.New(rand.NewPCG(seed, uint64(i)))))
		})
		if t.Failed() {
			return // one program is enough to debug
		}
	}
}

// The promises hold in random programs even if thousands of requests and replies are lost, late or repeated.
func TestProgramsUnderFaults(t *testing.T) {
	testkit.Once(t)
	want := testkit.Rounds(30_000, 100_000)
	if testing.Short() {
		want = 2_000
	}
	const seed = 2
	faults, programs := 0, 0
	for ; faults < want && !t.Failed(); programs++ {
		t.Run(strconv.Itoa(programs), func(t *testing.T) {
			p := program.Decode(program.Noisy(rand.New(rand.NewPCG(seed, uint64(programs)))))
			synctest.Test(t, func(t *testing.T) {
				w := program.InMemory(t, p)
				program.Run(t, w, p)
				faults += w.Faults()
			})
		})
		if programs > want {
			t.Fatalf("%d programs had %d faults, want at least %d: do the links inject faults at all?", programs, faults, want)
		}
	}
	t.Logf("%d faults in %d programs, seed %d", faults, programs, seed)
}

// Sessions notice that a fail-over has undone an Unlock, or that a former primary has answered; otherwise the key would
// stay locked. A calm session sends no needless Discard.
func TestChoicesOfTheStore(t *testing.T) {
	lock, unlock := program.Op{Verb: program.Lock, Variant: 2, Arg: 15}, program.Op{Verb: program.Unlock}
	undone := program.Op{Verb: program.FailOver, Arg: 15} // right after an Unlock
	failOver, former := program.Op{Verb: program.FailOver}, program.Op{Verb: program.FailOver, Variant: 2}
	heal := program.Op{Verb: program.Heal}
	for _, c := range []struct {
		name string
		program.Program
	}{
		{"nothing to discard", program.Program{Final: true, Calm: true, Ops: []program.Op{lock, unlock, {Verb: program.Sleep, Arg: 13}}}},
		{"undone", program.Program{Final: true, Ops: []program.Op{undone}}},
		{"released at the former primary", program.Program{Final: true, Ops: []program.Op{
			lock, failOver, former, unlock, heal,
		}}},
		{"unknown to the former primary", program.Program{Final: true, Ops: []program.Op{
			failOver, lock, former, unlock, heal,
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.Program
			p.Sessions = []program.Setting{{Polling: true}, {Polling: true}}
			synctest.Test(t, func(t *testing.T) { program.Run(t, program.InMemory(t, p), p) })
		})
	}
}
