//go:build linux || darwin || freebsd

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/trace"
	"github.com/leasehold-go/leasehold/leader"
)

// eventually waits for cond, and fails the test if it does not become true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// session returns a session on store. It stands for the session of another process.
func session(t *testing.T, store driver.Store) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second, PollInterval: 20 * time.Millisecond})
	noErr(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// free fails the test if key is held or has waiters.
func free(t *testing.T, store driver.Store, key string) {
	t.Helper()
	st, err := store.Load(context.Background(), key, 1000)
	noErr(t, err)
	if len(st.Holders) != 0 || st.Waiting != 0 {
		t.Errorf("the key is held by %v, %d waiting; want no holder and no waiters", st.Holders, st.Waiting)
	}
}

// read returns the content of a file that a command has written.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// dead reports whether the process has exited, whether or not it has been reaped.
func dead(pid string) bool {
	text, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestRunForwardsOutputAndStatus(t *testing.T) {
	for _, c := range []struct {
		command []string
		status  int
		out     string
		err     string
	}{
		{[]string{"sh", "-c", `echo "$LEASEHOLD_KEY ${LEASEHOLD_TOKEN:+token} ${LEASEHOLD_TERM:-no term}"`}, 0, "k token no term\n", ""},
		{[]string{"sh", "-c", "exit 7"}, 7, "", ""},
		{[]string{"sh", "-c", "kill -9 $$"}, 128 + 9, "", ""},
		{[]string{"sh", "-c", "echo oops >&2; exit 1"}, 1, "", "oops\n"},
		{[]string{"no-such-command"}, exitNotFound, "", "leasehold: exec: \"no-such-command\": executable file not found in $PATH\n"},
		{[]string{"/"}, exitNotRunnable, "", "leasehold: exec: \"/\": is a directory\n"},
	} {
		store := dsynctest.NewMemory()
		got := command(t, store, append([]string{"run", "k", "--"}, c.command...)...)
		if got.status != c.status || got.out != c.out || got.err != c.err {
			t.Errorf("%q: %+v, want status %d, out %q, err %q", c.command, got, c.status, c.out, c.err)
		}
		free(t, store, "k")
	}
}

// With the hidden flag --trace, leasehold writes the session's events to a file, from which they
// can be replayed.
func TestRunWritesATrace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	if got := command(t, dsynctest.NewMemory(), "run", "--trace", name, "k", "--", "true"); got.status != 0 {
		t.Fatalf("run with --trace: %+v", got)
	}
	f, err := os.Open(name)
	noErr(t, err)
	defer f.Close()
	if n, err := trace.Replay(f); n < 5 || err != nil {
		t.Errorf("the trace has %d events, %v", n, err)
	}
}

func TestRunBadInputLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "there is no -- before the command; usage: leasehold run"},
		{[]string{"run", "k", "true"}, "there is no -- before"},
		{[]string{"run", "--", "true"}, "0 arguments before --, want one"},
		{[]string{"run", "k", "l", "--", "true"}, "2 arguments before --, want one"},
		{[]string{"run", "k", "--"}, "there is no command after --"},
		{[]string{"run", "", "--", "true"}, "dsync: invalid key"},
		{[]string{"run", strings.Repeat("k", 513), "--", "true"}, "dsync: invalid key"},
		{[]string{"run", "--try", "--timeout", "1s", "k", "--", "true"}, "--try does not wait, so --timeout 1s has no effect; use one of them"},
		{[]string{"run", "--timeout", "-1s", "k", "--", "true"}, "--timeout is -1s"},
		{[]string{"run", "--ttl", "10ms", "k", "--", "true"}, "dsync: TTL is 10ms; it must be at least 1s"},
		{[]string{"run", "--ttl", "0s", "k", "--", "true"}, "--ttl is 0s; it must be at least 1s"},
		{[]string{"run", "--ttl", "-5s", "k", "--", "true"}, "--ttl is -5s; it must not be negative"},
		{[]string{"run", "--ttl", "10s", "--grace", "9s", "k", "--", "true"}, "--grace 9s is too long for --ttl 10s"},
		{[]string{"run", "-n", "0", "k", "--", "true"}, "-n is 0; it must be at least 1"},
		{[]string{"run", "--tick", "1m", "-n", "2", "k", "--", "true"}, "--tick can't be used with -n"},
		{[]string{"run", "--tick", "1m", "--at-least", "2s", "k", "--", "true"}, "--tick can't be used with -n, --shared, --exclusive or --at-least"},
		{[]string{"run", "--tick", "tonight", "k", "--", "true"}, "--tick is \"tonight\"; it must be a time such as"},
		{[]string{"run", "--tick", "7m", "k", "--", "true"}, "--tick is 7m0s; an interval must be at least 1s and divide a day evenly"},
		{[]string{"run", "--tick", "100ms", "k", "--", "true"}, "--tick is 100ms; an interval must be at least 1s"},
		{[]string{"run", "--tick", "1960-01-01T00:00:00Z", "k", "--", "true"}, "--tick is 1960-01-01T00:00:00Z; it must be after 1970"},
		{[]string{"run", "--tick", "2026-11-01T02:00:00.0001Z", "k", "--", "true"}, "--tick is 2026-11-01T02:00:00.0001Z; it must be after 1970, in whole milliseconds"},
		{[]string{"run", "-n", "2", "--shared", "k", "--", "true"}, "-n, --shared and --exclusive are three ways to use a key; choose one"},
		{[]string{"run", "--exclusive", "--shared", "k", "--", "true"}, "-n, --shared and --exclusive are three ways to use a key; choose one"},
		{[]string{"run", "--at-least", "-1s", "k", "--", "true"}, "--at-least is -1s; it must not be negative"},
		{[]string{"once", "k"}, "there is no -- before the command; usage: leasehold once"},
		{[]string{"elect", "--try", "k", "--", "true"}, "leasehold elect has no flag --try; see leasehold elect --help"},
		{[]string{"elect", "k", "true"}, "there is no -- before the command; usage: leasehold elect"},
	} {
		store := dsynctest.NewMemory()
		got := command(t, store, c.args...)
		if got.status != exitUsage || !strings.HasPrefix(got.err, "leasehold: "+c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %+v, want status %d and one line that begins with %q", c.args, got, exitUsage, c.want)
		}
		keys, err := store.Keys(t.Context(), driver.KeyQuery{Limit: 10})
		members, _, err2 := storecmd.Members(t.Context(), store)
		if err != nil || err2 != nil || len(keys)+len(members) != 0 {
			t.Errorf("%q left behind %v, %v (%v, %v)", c.args, keys, members, err, err2)
		}
	}
}

func TestRunHeld(t *testing.T) {
	store := dsynctest.NewMemory()
	s, err := dsync.New(store, &dsync.Options{Name: "pod-7"})
	noErr(t, err)
	defer s.Close(context.Background())
	m := s.Mutex("k")
	m.Lock()
	defer m.Unlock()
	for _, c := range []struct {
		flags  []string
		status int
		want   string
	}{
		{[]string{"--try"}, exitHeld, `leasehold: dsync: "k" is held by another: pod-7 (process`},
		{[]string{"--timeout", "50ms"}, exitTimeout, `leasehold: "k" was not free within 50ms: held by pod-7 (process`},
	} {
		got := command(t, store, append(append([]string{"run"}, c.flags...), "k", "--", "echo", "ran")...)
		if got.status != c.status || got.out != "" || !strings.HasPrefix(got.err, c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %+v, want status %d and one line that begins with %q", c.flags, got, c.status, c.want)
		}
		if n := waiting(t, store, "k"); n != 0 {
			t.Errorf("%q: %d waiters are left in the queue", c.flags, n)
		}
	}
}

func waiting(t *testing.T, store driver.Store, key string) int {
	t.Helper()
	st, err := store.Load(context.Background(), key, 1000)
	noErr(t, err)
	return st.Waiting
}

// A refusing store refuses to register sessions, as if this process had no privileges.
type refusing struct{ driver.Store }

func (refusing) Register(context.Context, driver.Member) (time.Time, error) {
	return time.Time{}, fmt.Errorf("register: %w: not authorized", dsync.ErrRefused)
}

// run does not keep waiting for a server that refuses its commands.
func TestRunRefused(t *testing.T) {
	for _, flags := range [][]string{{"run"}, {"run", "--try"}, {"elect"}} {
		got := command(t, refusing{dsynctest.NewMemory()}, append(flags, "k", "--", "echo", "ran")...)
		if got.status != exitRefused || got.out != "" || !strings.HasPrefix(got.err, "leasehold: the server refuses: ") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %+v, want status %d and one line", flags, got, exitRefused)
		}
	}
}

// SIGTERM is forwarded to the group, SIGUSR1 only to the command. The command decides how to react;
// the key is held until the command has ended.
func TestRunForwardsSignals(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	store := dsynctest.NewMemory()
	script := fmt.Sprintf(`exec >%s
		trap 'echo USR1' USR1
		trap 'echo TERM; ended=yes' TERM
		(trap 'echo TERM of the child; exit' TERM; echo child; while :; do sleep 0.01; done) &
		while [ "$ended" = "" ]; do sleep 0.01; done
		wait; exit 5`, file)
	_, end := start(t.Context(), store, "run", "k", "--", "sh", "-c", script)
	eventually(t, "the command runs", func() bool { return strings.Contains(read(t, file), "child\n") })
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	eventually(t, "SIGUSR1 is forwarded", func() bool { return strings.Contains(read(t, file), "USR1\n") })
	if m := session(t, store).Mutex("k"); m.TryLock() {
		t.Error("the key is free while the command runs")
	}
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if got := <-end; got.status != 5 || strings.Contains(got.err, "leasehold") {
		t.Errorf("run: %+v, want status 5 and no error", got)
	}
	for _, want := range []string{"\nTERM\n", "TERM of the child\n"} {
		if got := read(t, file); !strings.Contains(got, want) {
			t.Errorf("the command did not write %q: %q", want, got)
		}
	}
	free(t, store, "k")
}

// A signal ends the wait for the key and leaves no waiter in the queue.
func TestRunInterruptedInTheWait(t *testing.T) {
	store := dsynctest.NewMemory()
	m := session(t, store).Mutex("k")
	m.Lock()
	defer m.Unlock()
	_, end := start(t.Context(), store, "run", "k", "--", "true")
	eventually(t, "leasehold waits for the key", func() bool { return waiting(t, store, "k") == 1 })
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if got := <-end; got.status != 128+15 || got.err != "" {
		t.Errorf("the interrupted run: %+v, want status %d and no error", got, 128+15)
	}
	if n := waiting(t, store, "k"); n != 0 {
		t.Errorf("%d waiters are left in the queue", n)
	}
}

// When heartbeats fail, the command and its child, which ignore SIGTERM, are dead before another
// session is granted the key.
func TestRunDeadBeforeTaken(t *testing.T) {
	for _, grace := range []string{"0s", "600ms"} {
		file := filepath.Join(t.TempDir(), "pids")
		memory := dsynctest.NewMemory()
		var cut atomic.Bool
		faulty := dsynctest.NewFaulty(memory, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: cut.Load()}
		})
		t.Cleanup(faulty.Close)
		script := fmt.Sprintf(`trap 'echo term' TERM; (trap '' TERM; exec sleep 1000) & echo $$ $! >%s; while :; do wait; done`, file)
		_, end := start(t.Context(), faulty, "run", "--ttl", "2s", "--grace", grace, "k", "--", "sh", "-c", script)
		eventually(t, "the command runs", func() bool { return strings.HasSuffix(read(t, file), "\n") })
		m := session(t, memory).Mutex("k")
		cut.Store(true)
		m.Lock()
		for _, pid := range strings.Fields(read(t, file)) {
			if !dead(pid) {
				t.Errorf("grace %s: process %s is alive while another session holds the key", grace, pid)
			}
		}
		m.Unlock()
		got := <-end
		if got.status != exitLost || !strings.HasPrefix(got.err, `leasehold: "k" was lost, and the command was stopped: dsync: hold lost`) {
			t.Errorf("grace %s: %+v, want status %d and a line about the loss", grace, got, exitLost)
		}
		if said := strings.Contains(got.out, "term"); said != (grace != "0s") {
			t.Errorf("grace %s: SIGTERM was sent: %t", grace, said)
		}
	}
}

// If the key is broken, the command gets SIGTERM and has its grace to end. The key is free as soon
// as the command has ended.
func TestRunBroken(t *testing.T) {
	store := dsynctest.NewMemory()
	out, end := start(t.Context(), store, "run", "--ttl", "6s", "--grace", "1s", "k", "--",
		"sh", "-c", `trap 'echo stopping; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
	go admin.New(session(t, store)).Break(context.Background(), "k")
	got := <-end
	if got.status != exitLost || !strings.Contains(got.err, dsync.ErrRevoked.Error()) {
		t.Errorf("run: %+v, want status %d and a message that the holder was asked to release the key", got, exitLost)
	}
	if !strings.Contains(got.out, "stopping") {
		t.Error("the command got no SIGTERM")
	}
	free(t, store, "k")
}

// Processes that the command leaves behind die before the key is free.
func TestRunLeavesNoChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	store := dsynctest.NewMemory()
	if got := command(t, store, "run", "k", "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $! >`+file); got.status != 0 {
		t.Errorf("run: %+v", got)
	}
	if pid := read(t, file); !dead(pid) {
		t.Errorf("process %s is still alive", pid)
	}
}

// elect campaigns again after a loss of the leadership. When the command ends by itself, elect
// exits with the command's status.
func TestElectCampaignsAgain(t *testing.T) {
	store := dsynctest.NewMemory()
	const script = `
		test $LEASEHOLD_KEY = e && test $LEASEHOLD_TOKEN -gt 0 || exit 9
		test $LEASEHOLD_TERM = 2 && exit 5
		echo "term $LEASEHOLD_TERM"
		while :; do sleep 0.01; done`
	out, end := start(t.Context(), store, "elect", "--ttl", "6s", "--grace", "1s", "--name", "me", "e", "--", "sh", "-c", script)
	eventually(t, "the first term began", func() bool { return strings.Contains(out.take(), "term 1") })
	s := session(t, store)
	e, err := leader.New(s, "e", nil)
	noErr(t, err)
	if l, err := e.Leader(t.Context()); err != nil || l.Name != "me" || l.Term != 1 {
		t.Errorf("package leader sees %+v, %v, want this process as the leader of term 1", l, err)
	}
	go admin.New(s).Break(context.Background(), "e")
	got := <-end
	if got.status != 5 || !strings.HasPrefix(got.err, `leasehold: "e" was lost, and the command was stopped: `) || strings.Count(got.err, "\n") != 1 {
		t.Errorf("elect: %+v, want status 5 and one line about the loss", got)
	}
	free(t, store, "e")
}

// Of those who wait, the process with the greatest --preference is elected. Without the flag elect is an equal of Go
// programs that have no preference.
func TestElectPreference(t *testing.T) {
	store := dsynctest.NewMemory()
	candidate := func(name string, preference int) *leader.Election {
		s, err := dsync.New(store, &dsync.Options{Name: name})
		noErr(t, err)
		t.Cleanup(func() { s.Close(context.Background()) })
		e, err := leader.New(s, "e", &leader.Options{Preference: preference})
		noErr(t, err)
		return e
	}
	first := candidate("first", 0)
	if _, err := first.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	candidates := []string{"first"}
	joined := func(name string) {
		t.Helper()
		candidates = append(candidates, name)
		eventually(t, name+" waits", func() bool {
			all, err := first.Candidates(t.Context())
			return err == nil && len(all) == len(candidates)
		})
	}
	go candidate("equal", 0).Campaign(t.Context())
	joined("equal")
	ctx, cancel := context.WithCancel(t.Context())
	var ends []<-chan result
	for _, c := range [][]string{{"elect", "--name", "plain"}, {"elect", "--name", "more", "--preference", "2"}, {"elect", "--name", "less", "--preference", "-1"}} {
		_, end := start(ctx, store, append(c, "e", "--", "true")...)
		ends = append(ends, end)
		joined(c[2])
	}
	go candidate("one", 1).Campaign(t.Context())
	joined("one")
	all, err := first.Candidates(t.Context())
	var got []string
	for _, c := range all {
		got = append(got, c.Name)
	}
	if want := []string{"first", "more", "one", "equal", "plain", "less"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the candidates are %q, %v, want %q", got, err, want)
	}
	cancel()
	for _, end := range ends {
		<-end
	}
}

// If a signal arrives while elect is stopping the command after a loss, elect does not campaign
// again.
func TestElectEndsOnSignal(t *testing.T) {
	store := dsynctest.NewMemory()
	out, end := start(t.Context(), store, "elect", "--ttl", "6s", "--grace", "1s", "e", "--",
		"sh", "-c", `trap 'echo stopping' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
	go admin.New(session(t, store)).Break(context.Background(), "e")
	eventually(t, "the command is being stopped", func() bool { return strings.Contains(out.take(), "stopping") })
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if got := <-end; got.status != exitLost {
		t.Errorf("elect: %+v, want status %d", got, exitLost)
	}
	free(t, store, "e")
}

// With --at-least, the key stays held for at least the given time, counted from its grant, whether the
// command succeeds or fails. If the command runs longer, the key is released when the command ends.
func TestRunAtLeast(t *testing.T) {
	for _, c := range []struct {
		script string
		status int
		kept   bool
	}{
		{"true", 0, true},
		{"exit 3", 3, true},
		{"sleep 1", 0, false},
	} {
		store := dsynctest.NewMemory()
		began := time.Now()
		if got := command(t, store, "run", "--at-least", "900ms", "k", "--", "sh", "-c", c.script); got.status != c.status || got.err != "" {
			t.Errorf("%s: %+v, want status %d", c.script, got, c.status)
		}
		if took := time.Since(began); c.kept && took > 900*time.Millisecond {
			t.Logf("%s took %v, too long for this test to show anything", c.script, took)
			continue
		}
		m := session(t, store).Mutex("k")
		if free := m.TryLock(); free == c.kept {
			t.Errorf("%s: the key is free right after the command: %t", c.script, free)
			continue
		}
		if c.kept {
			m.Lock()
			if held := time.Since(began); held < 900*time.Millisecond {
				t.Errorf("%s: the key was held for %v", c.script, held)
			}
		}
		m.Unlock()
	}
}

// -n limits how many commands run at the same time. Any number of commands with --shared run
// together; a command with --exclusive runs alone.
func TestRunBeside(t *testing.T) {
	for _, c := range []struct {
		flags []string // flags of the running commands
		more  []string // flags of another command
		n     int      // the number of running commands
		free  bool     // whether the other command can run
	}{
		{[]string{"-n", "2"}, []string{"-n", "2"}, 1, true},
		{[]string{"-n", "2"}, []string{"-n", "2"}, 2, false},
		{[]string{"--shared"}, []string{"--shared"}, 3, true},
		{[]string{"--shared"}, []string{"--exclusive"}, 2, false},
		{[]string{"--exclusive"}, []string{"--shared"}, 1, false},
		{[]string{"--exclusive"}, []string{"--exclusive"}, 1, false},
	} {
		store := dsynctest.NewMemory()
		file := filepath.Join(t.TempDir(), "go")
		var ends []<-chan result
		for range c.n {
			_, end := start(t.Context(), store, append(append([]string{"run"}, c.flags...), "k", "--",
				"sh", "-c", "while [ ! -e "+file+" ]; do sleep 0.01; done")...)
			ends = append(ends, end)
		}
		eventually(t, "all commands run", func() bool {
			st, err := store.Load(t.Context(), "k", 10)
			return err == nil && len(st.Holders) == c.n
		})
		got := command(t, store, append(append([]string{"run", "--try"}, c.more...), "k", "--", "true")...)
		if want := map[bool]int{true: 0, false: exitHeld}[c.free]; got.status != want {
			t.Errorf("%v while %d run with %v: %+v, want status %d", c.more, c.n, c.flags, got, want)
		}
		noErr(t, os.WriteFile(file, nil, 0o600))
		for _, end := range ends {
			if got := <-end; got.status != 0 {
				t.Errorf("%v: %+v", c.flags, got)
			}
		}
		free(t, store, "k")
	}
}

// leasehold once runs its command until the command has succeeded, and then never again. After that, a
// dsync.Once on the same key does not run either.
func TestOnce(t *testing.T) {
	store := dsynctest.NewMemory()
	file := filepath.Join(t.TempDir(), "runs")
	script := `echo "$LEASEHOLD_KEY ${LEASEHOLD_TOKEN:+token}" >>` + file + `; exit $(wc -l <` + file + `| sed 's/2/0/')`
	for i, want := range []int{1, 0, 0, 0} {
		if got := command(t, store, "once", "--quiet", "k", "--", "sh", "-c", script); got.status != want || got.err != "" {
			t.Errorf("call %d: %+v, want status %d", i+1, got, want)
		}
	}
	if got := command(t, store, "once", "--try", "k", "--", "sh", "-c", script); got.status != 0 {
		t.Errorf("with --try: %+v", got)
	}
	if got := read(t, file); got != "k token\nk token\n" {
		t.Errorf("the commands wrote %q, want two runs", got)
	}
	s := session(t, store)
	if err := s.Once("k").Do(t.Context(), func(context.Context) error {
		t.Error("a dsync.Once ran again, although the command had succeeded")
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := s.Once("other").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if got := command(t, store, "once", "other", "--", "echo", "ran"); got.status != 0 || got.out != "" {
		t.Errorf("after a dsync.Once: %+v", got)
	}
}

// A command that has succeeded for a tick is not run again for that tick or an earlier one.
func TestRunTick(t *testing.T) {
	store := dsynctest.NewMemory()
	for _, c := range []struct {
		tick, script string
		status       int
		out          string
	}{
		{"2026-11-01T02:00:00Z", "exit 3", 3, ""},
		{"2026-11-01T02:00:00Z", "echo $LEASEHOLD_TICK", 0, "2026-11-01T02:00:00Z\n"},
		{"2026-11-01T02:00:00Z", "echo again", 0, ""},
		{"2026-11-01T03:00:00+01:00", "echo again", 0, ""},
		{"2026-11-01T01:59:59Z", "echo earlier", 0, ""},
		{"2026-11-02T02:00:00.5+01:00", "echo $LEASEHOLD_TICK", 0, "2026-11-02T01:00:00.5Z\n"},
	} {
		got := command(t, store, "run", "--quiet", "--tick", c.tick, "k", "--", "sh", "-c", c.script)
		if got.status != c.status || got.out != c.out || got.err != "" {
			t.Errorf("%s %q: %+v, want status %d, out %q", c.tick, c.script, got, c.status, c.out)
		}
	}
	free(t, store, "k")
	last, _, err := session(t, store).Periodic("k").Last(t.Context())
	if want := time.Date(2026, 11, 2, 1, 0, 0, 500_000_000, time.UTC); err != nil || last != want {
		t.Errorf("the last tick is %v, %v, want %v", last, err, want)
	}
	if got := command(t, store, "run", "--quiet", "--try", "--tick", "2026-11-02T00:00:00Z", "k", "--", "echo", "over"); got.status != 0 || got.out != "" {
		t.Errorf("with --try and a tick that has succeeded: %+v", got)
	}
	if got := command(t, store, "run", "k", "--", "true"); got.status != exitUsage || !strings.Contains(got.err, "periodic") {
		t.Errorf("without a tick: %+v, want the status of a usage error", got)
	}
}

// B43: with an interval, leasehold uses the last tick that is due, however late a host runs the
// command. A tick counts as due a tenth of the interval before its time, but at most 30 s before.
func TestTickOfAnInterval(t *testing.T) {
	midnight := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		interval  string
		tolerance time.Duration
	}{
		{"1s", 100 * time.Millisecond}, {"1m", 6 * time.Second}, {"5m", 30 * time.Second}, {"10m", 30 * time.Second}, {"1h", 30 * time.Second}, {"24h", 30 * time.Second},
	} {
		d, err := time.ParseDuration(c.interval)
		noErr(t, err)
		for _, tick := range []time.Time{midnight, midnight.Add(d), midnight.Add(24*time.Hour - d)} {
			for _, off := range []time.Duration{-c.tolerance, -c.tolerance / 2, -1, 0, 1, 30 * time.Millisecond, d / 2, d - c.tolerance - 1} {
				if got, err := tickOf(c.interval, tick.Add(off).In(time.FixedZone("", 5*3600+1800))); err != nil || got != tick.UnixMilli() {
					t.Errorf("%s, %v after the tick: got %v, %v, want %v", c.interval, off, time.UnixMilli(got).UTC(), err, tick)
				}
			}
		}
	}
	// The command is run by hand at 23:39 and at noon.
	if got, err := tickOf("1h", midnight.Add(-21*time.Minute)); err != nil || got != midnight.Add(-time.Hour).UnixMilli() {
		t.Errorf("1h: got %v, %v, want 23:00: midnight is the tick of the run at midnight", time.UnixMilli(got).UTC(), err)
	}
	for _, off := range []time.Duration{-time.Second, 0, time.Second} {
		if got, err := tickOf("24h", midnight.Add(12*time.Hour+off)); err != nil || got != midnight.UnixMilli() {
			t.Errorf("24h: got %v, %v, want the last midnight, before and after noon", time.UnixMilli(got).UTC(), err)
		}
	}
}

// leasehold prints the tick of each command that it runs or skips. So people can notice that a run by hand, or on a
// host with a wrong clock, has taken the tick of the next run. --quiet suppresses both messages.
func TestRunSaysTheTick(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		store := dsynctest.NewMemory()
		run := func(args ...string) result {
			if quiet {
				args = append([]string{args[0], "--quiet"}, args[1:]...)
			}
			return command(t, store, args...)
		}
		for _, c := range []struct {
			args []string
			want result
		}{
			{[]string{"run", "--tick", "2026-11-01T02:00:00Z", "k", "--", "echo", "ran"}, result{0, "ran\n", `leasehold: "k" runs for the tick 2026-11-01T02:00:00Z` + "\n"}},
			{[]string{"run", "--tick", "2026-11-01T02:00:00Z", "k", "--", "echo", "ran"}, result{0, "", `leasehold: "k" has already succeeded for the tick 2026-11-01T02:00:00Z; not run again` + "\n"}},
			{[]string{"run", "--tick", "2026-11-01T01:00:00Z", "k", "--", "echo", "ran"}, result{0, "", `leasehold: "k" is not run for the tick 2026-11-01T01:00:00Z; it has already succeeded for a later one, 2026-11-01T02:00:00Z` + "\n"}},
			{[]string{"once", "o", "--", "echo", "ran"}, result{0, "ran\n", ""}},
			{[]string{"once", "o", "--", "echo", "ran"}, result{0, "", `leasehold: "o" has already succeeded; not run again` + "\n"}},
		} {
			if quiet {
				c.want.err = ""
			}
			if got := run(c.args...); got != c.want {
				t.Errorf("%q: %+v, want %+v", c.args, got, c.want)
			}
		}
		got := run("run", "--tick", "1h", "k2", "--", "sh", "-c", "echo $LEASEHOLD_TICK")
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(got.out))
		if late := time.Since(at); err != nil || late < -30*time.Second || late > 2*time.Hour || quiet != (got.err == "") {
			t.Errorf("the command printed %+v, %v, want the last full hour", got, err)
		}
	}
}

// If the key of leasehold once is broken while the command runs, the next leasehold once runs the
// command again.
func TestOnceBroken(t *testing.T) {
	store := dsynctest.NewMemory()
	out, end := start(t.Context(), store, "once", "--ttl", "6s", "--grace", "1s", "k", "--",
		"sh", "-c", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { return strings.Contains(out.take(), "ready") })
	go admin.New(session(t, store)).Break(context.Background(), "k")
	if got := <-end; got.status != exitLost {
		t.Errorf("the once whose key was broken: %+v, want status %d", got, exitLost)
	}
	if got := command(t, store, "once", "k", "--", "echo", "ran"); got.status != 0 || got.out != "ran\n" {
		t.Errorf("the next once: %+v", got)
	}
}
