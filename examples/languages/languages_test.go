//go:build linux

// Package languages_test runs the clients in other languages, beside programs in Go on the same keys.
package languages_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// A language has programs that use its client. The programs print lines, and wait for lines on standard input.
type language struct {
	name    string
	command []string // runs a program, which is the last argument
	count   string   // adds 1 to the number in the file $FILE, 50 times, each time while it holds "count"
	hold    string   // holds "k", prints "held" and "lost", and waits for a line before it releases
	try     string   // prints "held by NAME" for the holder of "k"
	run     string   // runs "nightly" for a tick, with the result "done", and prints the result
	elect   string   // campaigns in "reports", prints "elected" and "revoked", and waits for a line before it stops
}

var languages = []language{
	{
		name: "Python", command: []string{"python3", "-u", "-c"},
		count: `
import os
from leasehold import Agent, Lost
agent, file = Agent(os.environ["LEASEHOLD_AGENT"]), os.environ["FILE"]
for _ in range(50):
    with agent.lock("count") as hold:
        n = int(open(file).read())
        open(file, "w").write(str(n + 1))
    try:
        hold.check()
    except Lost:
        continue
    raise SystemExit("check passes after the block")
`,
		hold: `
import os
from leasehold import Agent, Lost
try:
    with Agent(os.environ["LEASEHOLD_AGENT"], os.environ.get("LEASEHOLD_AGENT_TOKEN")).lock("k", on_lost=lambda _: print("lost")) as hold:
        hold.check()
        print("held")
        input()
except Lost:
    print("over")
`,
		try: `
import os
from leasehold import Agent, Held
try:
    with Agent(os.environ["LEASEHOLD_AGENT"]).lock("k", wait=0):
        print("held")
except Held as e:
    print("held by", e.holder["name"])
`,
		run: `
import os
from leasehold import Agent
with Agent(os.environ["LEASEHOLD_AGENT"]).run("nightly", tick="2026-11-01T02:00:00Z") as run:
    if run:
        print("runs")
        run.value = "done"
print(run.value)
`,
		elect: `
import os
from leasehold import Agent, Elector
e = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports", value="python", preference=1,
            on_leader=lambda term: print("elected", e.is_leader), on_leader_loss=lambda: print("revoked", e.is_leader))
e.start()
input()
e.stop()
print("stopped")
`,
	},
	{
		name: "Node", command: []string{"node", "--input-type=module", "-e"},
		count: `
import fs from 'node:fs'
import { Agent } from './leasehold.mjs'
const agent = new Agent(process.env.LEASEHOLD_AGENT), file = process.env.FILE
for (let i = 0; i < 50; i++) await agent.lock('count', async () => {
  const n = Number(fs.readFileSync(file))
  await new Promise(setImmediate)
  fs.writeFileSync(file, String(n + 1))
})
`,
		hold: `
import { once } from 'node:events'
import { Agent, LostError } from './leasehold.mjs'
try {
  await new Agent(process.env.LEASEHOLD_AGENT, { token: process.env.LEASEHOLD_AGENT_TOKEN }).lock('k', async (hold) => {
    hold.on('lost', () => console.log('lost'))
    console.log(hold.lost ? 'lost' : 'held')
    await once(process.stdin, 'data')
  })
} catch (e) {
  console.log(e instanceof LostError ? 'over' : e)
}
process.exit()
`,
		try: `
import { Agent, HeldError } from './leasehold.mjs'
try {
  await new Agent(process.env.LEASEHOLD_AGENT).lock('k', () => console.log('held'), { wait: 0 })
} catch (e) {
  console.log(e instanceof HeldError ? 'held by ' + e.holder.name : e)
}
`,
		run: `
import { Agent } from './leasehold.mjs'
console.log(await new Agent(process.env.LEASEHOLD_AGENT).run('nightly', () => {
  console.log('runs')
  return 'done'
}, { tick: '2026-11-01T02:00:00Z' }))
`,
		elect: `
import { once } from 'node:events'
import { Agent, Elector } from './leasehold.mjs'
const python = (b) => (b ? 'True' : 'False')
const e = new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports', { value: 'node', preference: 1 })
e.on('elected', () => console.log('elected', python(e.isLeader()))).on('revoked', () => console.log('revoked', python(e.isLeader())))
e.start()
await once(process.stdin, 'data')
e.stop()
console.log('stopped')
process.exit()
`,
	},
	{
		name: "shell", command: []string{"bash", "-c"},
		count: `
. ./leasehold.sh
export FILE
for i in {1..50}; do with_lock count bash -c 'n=$(<"$FILE"); echo $((n + 1)) >"$FILE"' || exit; done
`,
		hold: `
set -Eeuo pipefail
trap '[ $BASH_SUBSHELL = 0 ] || exit 1' ERR
. ./leasehold.sh
trap '[ $? != 114 ] || echo over; exit 0' EXIT
with_lock k bash -c 'trap "echo lost; exit" TERM; echo held; until read -t 0.05; do [ $? -gt 128 ] || exit; done'
`,
		try: `
. ./leasehold.sh
message=$(with_lock 'k?wait=0s' echo held 2>&1)
echo "held by $([ $? = 112 ] && sed 's/.*"name":"\([a-z]*\)".*/\1/' <<<"$message")"
`,
	},
}

// needs returns the program, or skips the test if the client has none or its interpreter is missing. In CI it must be there.
func (l language) needs(t *testing.T, program string) string {
	t.Helper()
	if program == "" {
		t.Skip("the client does not do this")
	}
	if _, err := exec.LookPath(l.command[0]); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return program
}

// A place has an agent, on a store in memory that programs in Go share with it.
type place struct {
	t      *testing.T
	locks  *dsync.Session // of a program in Go
	server *httptest.Server
	url    string
}

func newPlace(t *testing.T) *place { return newPlaceWith(t, nil) }

func newPlaceWith(t *testing.T, opt *agent.Options) *place {
	if os.Getenv("LEASEHOLD_REPEATED") != "" {
		t.Skip("real processes in real time, and LEASEHOLD_REPEATED is set")
	}
	store := dsynctest.NewMemory()
	session := func(name string) *dsync.Session {
		s, err := dsync.New(store, &dsync.Options{Name: name, Grace: 5 * time.Second, AlwaysListen: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			s.Close(ctx)
		})
		return s
	}
	p := &place{t: t, locks: session("go")}
	p.server = httptest.NewUnstartedServer(agent.New(session("agent"), opt))
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p.server.Listener.Close()
	p.server.Listener, p.url = l, "unix:"+path
	p.server.Start()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// A program is one that runs.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

func (p *place) start(l language, text string, env ...string) *program {
	p.t.Helper()
	cmd := exec.Command(l.command[0], append(l.command[1:len(l.command):len(l.command)], text)...)
	cmd.Env = append(os.Environ(), append(env, "LEASEHOLD_AGENT="+p.url, "PYTHONDONTWRITEBYTECODE=1")...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that signal reaches the programs that it starts
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	g := &program{p.t, cmd, in, bufio.NewReader(out)}
	p.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			g.signal(syscall.SIGKILL)
			cmd.Wait()
		}
	})
	return g
}

// signal sends a signal to the program and to those that it has started, as a terminal does.
func (g *program) signal(s syscall.Signal) { syscall.Kill(-g.cmd.Process.Pid, s) }

// want fails the test unless the program's next lines are these.
func (g *program) want(lines ...string) {
	g.t.Helper()
	defer time.AfterFunc(time.Minute, func() { g.signal(syscall.SIGKILL) }).Stop() // so that a test fails that would hang
	for _, want := range lines {
		got, err := g.lines.ReadString('\n')
		if strings.TrimSpace(got) != want {
			g.t.Fatalf("the program prints %q, %v, want %q", got, err, want)
		}
	}
}

// wantEnd fails the test unless the program ends with the status 0, and prints nothing more.
func (g *program) wantEnd() {
	g.t.Helper()
	if rest, err := io.ReadAll(g.lines); len(rest) > 0 || err != nil {
		g.t.Errorf("the program prints %q, %v", rest, err)
	}
	if err := g.cmd.Wait(); err != nil {
		g.t.Error(err)
	}
}

// enter sends a line to the program.
func (g *program) enter() {
	g.t.Helper()
	if _, err := io.WriteString(g.in, "\n"); err != nil {
		g.t.Fatal(err)
	}
}

func each(t *testing.T, f func(*testing.T, language)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) { f(t, l) })
	}
}

// Programs in all languages and in Go take turns with a key: none reads the number between another's read and write.
func TestTurnsWithGo(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(t.TempDir(), "number")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var programs []*program
	for _, l := range languages {
		if _, err := exec.LookPath(l.command[0]); err == nil {
			programs = append(programs, p.start(l, l.count, "FILE="+file), p.start(l, l.count, "FILE="+file))
		}
	}
	number := func() int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	mu := p.locks.Mutex("count")
	for range 50 {
		mu.Lock()
		if err := os.WriteFile(file, fmt.Append(nil, number()+1), 0o600); err != nil {
			t.Error(err)
		}
		mu.Unlock()
	}
	for _, g := range programs {
		g.wantEnd()
	}
	if got, want := number(), 50*(len(programs)+1); got != want {
		t.Errorf("the number is %d, want %d", got, want)
	}
}

// A client's lock is free when its program releases it, and when the program is killed.
func TestRelease(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.hold)
		p := newPlace(t)
		mu := p.locks.Mutex("k")
		first := p.start(l, text)
		first.want("held")
		if mu.TryLock() {
			t.Fatal("the key is locked, and a program in Go has it, too")
		}
		p.start(l, l.try).want("held by agent")
		first.enter()
		first.wantEnd()
		mu.Lock()
		p.start(l, l.try).want("held by go")
		second := p.start(l, text)
		mu.Unlock()
		second.want("held")
		second.cmd.Process.Kill()
		if l.name == "shell" { // the command outlives its shell, and holds the lock until it has ended
			if mu.TryLock() {
				t.Fatal("the key is free although the command runs")
			}
			second.enter()
		}
		mu.Lock() // waits until the key is free
		defer mu.Unlock()
	})
}

// When a signal reaches all its processes, as of a terminal or service, a command keeps its lock until it has ended. That
// is so even if the signal comes when the command has just started.
func TestShellSignals(t *testing.T) {
	for when, source := range map[string]string{
		"later":   ". ./leasehold.sh",
		"at once": `. <(sed 's/^\twork=\$!/\tsleep 0.5; work=$!/' leasehold.sh); declare -f with_lock | grep -q 'sleep 0.5' || exit`,
	} {
		for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
			t.Run(fmt.Sprint(s, " ", when), func(t *testing.T) {
				ours := make(chan os.Signal, 1)
				signal.Notify(ours, s) // otherwise, the shell would ignore a signal that this process ignores, as under nohup
				defer signal.Stop(ours)
				p := newPlace(t)
				shell := languages[2]
				g := p.start(shell, shell.needs(t, source+`
with_lock k bash -c 'trap "" HUP; trap "trap \"\" TERM; echo stops; read; exit" TERM; echo held; until read -t 0.05; do [ $? -gt 128 ] || exit; done'
`))
				g.want("held")
				g.signal(s)
				g.want("stops")
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				mu := p.locks.Mutex("k")
				if mu.LockContext(ctx) == nil {
					t.Fatal("the key is free although the command runs")
				}
				g.in.Close()
				mu.Lock() // waits until the key is free
				defer mu.Unlock()
			})
		}
	}
}

// A client is told when its lock is broken, and the next holds the key when it has stopped.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.hold)
		p := newPlace(t)
		g := p.start(l, text)
		g.want("held")
		broken := make(chan error, 1)
		go func() { broken <- admin.New(p.locks).Break(context.Background(), "k") }()
		g.want("lost")
		if l.name != "shell" {
			if p.locks.Mutex("k").TryLock() {
				t.Error("the key is free although the client has not stopped")
			}
			g.enter()
		}
		g.want("over")
		g.wantEnd()
		if err := <-broken; err != nil {
			t.Error(err)
		}
	})
}

// When the agent dies, its clients know at once.
func TestAgentDies(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.hold)
		p := newPlace(t)
		g := p.start(l, text)
		g.want("held")
		p.server.CloseClientConnections()
		g.want("lost")
		if l.name != "shell" {
			g.enter()
		}
		g.want("over")
		g.wantEnd()
	})
}

// A run that has succeeded is not run again, in any language.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.run)
		p := newPlace(t)
		first := p.start(l, text)
		first.want("runs", "done")
		first.wantEnd()
		second := p.start(l, text)
		second.want("done")
		second.wantEnd()
		tick := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
		value, ran, err := p.locks.Periodic("nightly").DoValue(t.Context(), tick, nil)
		if string(value) != "done" || ran || err != nil {
			t.Errorf("in Go the run has %q, %t, %v", value, ran, err)
		}
	})
}

// A candidate is elected and revoked once for each term, beside candidates in Go.
func TestElector(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.elect)
		p := newPlace(t)
		e, err := leader.New(p.locks, "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		g := p.start(l, text)
		g.want("elected True")
		if now, err := e.Leader(t.Context()); err != nil || string(now.Value) != strings.ToLower(l.name) {
			t.Errorf("the leader is %+v, %v", now, err)
		}
		elected := make(chan error, 1)
		go func() {
			_, err := e.Campaign(context.Background())
			elected <- err
		}()
		go admin.New(p.locks).Break(context.Background(), "reports")
		g.want("revoked False")
		if err := <-elected; err != nil {
			t.Fatal(err)
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		g.want("elected True")
		g.enter()
		g.want("revoked False", "stopped")
		g.wantEnd()
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A signal ends the wait for a lock in Node, but not a lock whose function is at work.
func TestNodeSignal(t *testing.T) {
	p := newPlace(t)
	node := languages[1]
	g := p.start(node, node.needs(t, `
import { once } from 'node:events'
import { Agent } from './leasehold.mjs'
const agent = new Agent(process.env.LEASEHOLD_AGENT), stop = new AbortController()
await agent.lock('k', async (hold) => {
  stop.abort()
  console.log('held')
  await once(process.stdin, 'data')
  console.log(hold.signal.aborted ? 'lost' : 'still held')
}, { signal: stop.signal })
await agent.lock('k', async () => {
  for (const signal of [AbortSignal.timeout(50), AbortSignal.abort()])
    await agent.lock('k', () => console.log('held twice'), { signal }).catch((e) => console.log(e.name))
})
process.exit()
`))
	g.want("held")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if p.locks.Mutex("k").LockContext(ctx) == nil {
		t.Fatal("the key is free although the function is at work")
	}
	g.enter()
	g.want("still held", "TimeoutError", "AbortError")
	g.wantEnd()
}

// If an agent stands still, a run whose program raises has failed, although the agent goes on later; and a leader is
// revoked, although its program was busy when the time was over.
func TestAgentStandsStill(t *testing.T) {
	for i, text := range map[int]string{0: `
import os
from leasehold import Agent, Lost
try:
    with Agent(os.environ["LEASEHOLD_AGENT"]).run("nightly", tick="2026-11-01T02:00:00Z", wait=1e6) as run:
        run.lost.wait()
        run.check()
except Lost:
    print("over")
`, 1: `
import { Agent, Elector } from './leasehold.mjs'
const e = new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports')
e.on('elected', () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)).on('revoked', () => {
  console.log('over')
  process.exit()
}).start()
`} {
		t.Run(languages[i].name, func(t *testing.T) {
			p := &place{t: t}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				what := map[string]string{
					"GET /v1/periodic/nightly":  "held",
					"GET /v1/elections/reports": "elected",
				}[r.Method+" "+r.URL.Path]
				if wait := r.FormValue("wait"); what == "" || wait != "" && wait != "1000000.000s" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				fmt.Fprintf(w, `{%q:"k","id":"i","term":1,"token":1,"left_ms":50,"grace_ms":1000}`+"\n", what)
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			p.url = server.URL
			g := p.start(languages[i], languages[i].needs(t, text))
			g.want("over")
			g.wantEnd()
		})
	}
}

// A leader that stops has stopped its work before another can lead.
func TestElectorStops(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		l.needs(t, l.elect)
		text := map[string]string{
			"Python": `
import os, time
from leasehold import Agent, Elector
def stop():
    print("stops")
    while not os.path.exists(os.environ["FILE"]): time.sleep(0.01)
e = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports", on_leader=lambda _: print("elected"), on_leader_loss=stop)
e.start()
input()
e.stop()
`,
			"Node": `
import fs from 'node:fs'
import { once } from 'node:events'
import { Agent, Elector } from './leasehold.mjs'
const e = new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports')
e.on('elected', () => console.log('elected')).on('revoked', () => {
  console.log('stops')
  while (!fs.existsSync(process.env.FILE)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10)
})
e.start()
await once(process.stdin, 'data')
e.stop()
process.exit()
`,
		}[l.name]
		p := newPlace(t)
		file := filepath.Join(t.TempDir(), "stopped")
		g := p.start(l, text, "FILE="+file)
		g.want("elected")
		g.enter()
		g.want("stops")
		e, err := leader.New(p.locks, "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := e.Campaign(ctx); err == nil {
			t.Error("another leads although the first works")
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g.wantEnd()
	})
}

// If a program's callback raises, its client does not stay the leader of an open response.
func TestElectorThatRaises(t *testing.T) {
	p := newPlace(t)
	python := languages[0]
	g := p.start(python, python.needs(t, `
import os, threading
from leasehold import Agent, Elector, Lost
agent, terms = Agent(os.environ["LEASEHOLD_AGENT"]), []
def start(term):
    terms.append(term)
    print("elected")
def stop():
    try:
        agent.call("POST", "holds", terms[0]["id"], "done")
    except Lost:
        raise ZeroDivisionError
threading.excepthook = lambda e: print(e.exc_type.__name__)
Elector(agent, "reports", on_leader=start, on_leader_loss=stop).start()
input()
`))
	g.want("elected")
	if err := admin.New(p.locks).Break(t.Context(), "reports"); err != nil {
		t.Fatal(err)
	}
	g.want("ZeroDivisionError")
	e, err := leader.New(p.locks, "reports", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := e.Campaign(ctx); err != nil {
		t.Error(err)
	}
}

// If on_leader raises, the process does not stay the leader, and says so.
func TestPythonLeaderRaises(t *testing.T) {
	p := newPlace(t)
	python := languages[0]
	g := p.start(python, python.needs(t, `
import os
from leasehold import Agent, Elector
elector = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports", on_leader=lambda _: 1 / 0,
                  on_leader_loss=lambda: print("revoked"), on_error=lambda e: print(type(e).__name__))
elector.start()
input()
`))
	g.want("revoked", "ZeroDivisionError")
	e, err := leader.New(p.locks, "reports", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := e.Campaign(ctx); err != nil {
		t.Error(err)
	}
}

// lockFree fails the test unless "k" becomes free.
func (p *place) lockFree() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	mu := p.locks.Mutex("k")
	if err := mu.LockContext(ctx); err != nil {
		p.t.Fatal(err)
	}
	mu.Unlock()
}

// A client sends the agent's token, to end a lost hold, too, and no program's arguments show it.
func TestToken(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, l.hold)
		const token = "open-sesame-7f83b1657ff1"
		p := newPlaceWith(t, &agent.Options{Token: token})
		g := p.start(l, text, "LEASEHOLD_AGENT_TOKEN="+token)
		g.want("held")
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if args, _ := os.ReadFile(file); strings.Contains(string(args), token) {
				t.Errorf("ps shows %q", args)
			}
		}
		go admin.New(p.locks).Break(context.Background(), "k")
		g.want("lost")
		if l.name != "shell" {
			g.enter()
		}
		g.want("over")
		g.wantEnd()
		if mu := p.locks.Mutex("k"); !mu.TryLock() {
			t.Error("the key waits for the end of the grace: done was refused")
		}
	})
}

// When a program dies, its lock is free, although a process that it has forked lives.
func TestPythonForks(t *testing.T) {
	p := newPlace(t)
	python := languages[0]
	g := p.start(python, python.needs(t, `
import os, signal
from leasehold import Agent
with Agent(os.environ["LEASEHOLD_AGENT"]).lock("k") as hold:
    if os.fork() == 0:
        print("forked")
        signal.pause()
    input()
    hold.check()
    print("held")
    input()
`))
	g.want("forked")
	g.enter()
	g.want("held")
	g.cmd.Process.Kill()
	p.lockFree()
}

// newFake returns an agent whose responses a test writes.
func newFake(t *testing.T, f http.HandlerFunc) *place { return newFakeAt(t, "127.0.0.1:0", f) }

func newFakeAt(t *testing.T, at string, f http.HandlerFunc) *place {
	if os.Getenv("LEASEHOLD_REPEATED") != "" {
		t.Skip("real processes in real time, and LEASEHOLD_REPEATED is set")
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(f)
	server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &place{t: t, server: server, url: server.URL}
}

// say sends a line of a response.
func say(w http.ResponseWriter, format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
	http.NewResponseController(w).Flush()
}

// A client that reads a line late, because it was frozen, relies on it for what is left of left_ms only. A clock that was
// set back adds nothing. If the agent is on another machine, whose clock may differ, only left_ms counts.
func TestOldLine(t *testing.T) {
	for _, test := range []struct {
		what, at    string
		first, next time.Duration // the ages of the lines, of which next is a sign of life; 0: there is none, or nothing is left
		left        time.Duration // of next
		want        []string
	}{
		{"first", "127.0.0.1:0", time.Hour, 0, 0, []string{"over"}},
		{"nothing left", "127.0.0.1:0", 0, 0, 0, []string{"over"}},
		{"sign of life", "127.0.0.1:0", time.Millisecond, 10*time.Minute - 50*time.Millisecond, 10 * time.Minute, []string{"held", "lost", "over"}},
		{"from the future", "127.0.0.1:0", time.Millisecond, -time.Hour, 50 * time.Millisecond, []string{"held", "lost", "over"}},
		// The client's address is 127.0.0.1, so this is another machine's.
		{"another machine", "127.0.0.2:0", time.Hour, time.Hour, 50 * time.Millisecond, []string{"held", "lost", "over"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			each(t, func(t *testing.T, l language) {
				held := make(chan struct{})
				p := newFakeAt(t, test.at, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == "POST" {
						w.WriteHeader(http.StatusGone)
						return
					}
					left := 600_000
					if test.first == 0 {
						left = 0
					}
					say(w, `{"held":"k","id":"i","token":1,"left_ms":%d,"unix_ms":%d,"grace_ms":1000}`, left, time.Now().Add(-test.first).UnixMilli())
					if test.next != 0 {
						select {
						case <-held:
						case <-r.Context().Done():
						}
						say(w, `{"left_ms":%d,"unix_ms":%d}`, test.left.Milliseconds(), time.Now().Add(-test.next).UnixMilli())
					}
					<-r.Context().Done()
				})
				g := p.start(l, l.needs(t, l.hold))
				for _, want := range test.want {
					g.want(want)
					switch {
					case want == "held":
						close(held)
					case want == "lost" && l.name != "shell":
						g.enter()
					}
				}
				g.wantEnd()
			})
		})
	}
}

// A candidate tries again when the agent does not serve, or a proxy before it, and ends with an error if its request is wrong.
func TestElectorIsRefused(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		l.needs(t, l.elect)
		text := map[string]string{
			"Python": `
import os, threading
from leasehold import Agent, Elector
def end(e):
    print(e)
    elector.stop()
    print("stopped")
elector = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports", on_error=end)
elector.start()
elector._thread.join()
threading.excepthook = lambda e: print(e.exc_value)
elector = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports")
elector.start()
elector._thread.join()
`,
			"Node": `
import { once } from 'node:events'
import { Agent, Elector } from './leasehold.mjs'
const elector = new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports').on('error', (e) => {
  console.log(e.message)
  elector.stop()
  console.log('stopped')
  process.on('uncaughtException', (e) => console.log(e.message))
  new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports').start()
})
elector.start()
`,
		}[l.name]
		answers := make(chan int, 10)
		p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case status := <-answers:
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(status)
				text := "{}" // of a proxy, whose answers need not have what an agent's have
				if status < 429 && status != 408 {
					text = fmt.Sprintf(`{"error":"status %d"}`, status)
				}
				say(w, "%s", text)
			case <-r.Context().Done():
			}
		})
		answers <- 0 // closes the connection
		answers <- 503
		answers <- 408
		answers <- 429
		answers <- 401
		answers <- 400
		g := p.start(l, text)
		g.want("status 401", "stopped", "status 400")
		g.wantEnd()
	})
}

// In Node, a leader whose term is lost may say when its work has stopped, and the next may lead before the grace is over.
func TestNodeElectorIsDone(t *testing.T) {
	done := make(chan string, 1)
	p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			done <- r.URL.Path
			w.WriteHeader(http.StatusNoContent)
			return
		}
		say(w, `{"elected":"reports","id":"i","term":1,"token":1,"left_ms":30000,"grace_ms":30000}`)
		say(w, `{"lost":"broken","grace_ms":30000}`)
		<-r.Context().Done()
	})
	node := languages[1]
	g := p.start(node, node.needs(t, `
import { once } from 'node:events'
import { Agent, Elector } from './leasehold.mjs'
new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports').on('revoked', async (stopped) => {
  console.log('stops')
  await once(process.stdin, 'data')
  await stopped()
  process.exit()
}).start()
`))
	g.want("stops")
	select {
	case path := <-done:
		t.Errorf("the client sends %s while its work stops", path)
	default:
	}
	g.enter()
	g.wantEnd()
	select {
	case path := <-done:
		if path != "/v1/holds/i/done" {
			t.Errorf("the client sends %s", path)
		}
	default:
		t.Error("the client does not send done")
	}
}

// When the function of the shell returns, the key is free, and it says if the lock was lost before.
func TestShellAwaitsItsRelease(t *testing.T) {
	for answer, status := range map[int]string{204: "3", 502: "3", 410: "114"} {
		var released atomic.Bool
		p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				time.Sleep(200 * time.Millisecond)
				released.Store(true)
				w.WriteHeader(answer)
				return
			}
			say(w, `{"held":"k","id":"i","token":1,"left_ms":30000,"grace_ms":60000}`)
			<-r.Context().Done()
		})
		shell := languages[2]
		g := p.start(shell, shell.needs(t, ". ./leasehold.sh\nwith_lock k sh -c 'exit 3'; echo $?"))
		g.want(status)
		if !released.Load() {
			t.Error("the function has returned before the agent has answered")
		}
		g.wantEnd()
	}
}

// The calls of on_leader do not overlap, and a term that is over before its call has none, nor one of on_leader_loss.
func TestPythonTermsDoNotOverlap(t *testing.T) {
	done := make(chan string)
	p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			done <- r.URL.Path
			w.WriteHeader(http.StatusNoContent)
			return
		}
		for term := 1; term <= 3; term++ {
			say(w, `{"elected":"reports","id":"%d","term":%[1]d,"token":1,"left_ms":30000,"grace_ms":3000}`, term)
			if term == 1 {
				<-done // the program has begun
			}
			if term < 3 {
				say(w, `{"lost":"broken","grace_ms":3000}`)
			}
		}
		<-r.Context().Done()
	})
	python := languages[0]
	g := p.start(python, python.needs(t, `
import os, threading
from leasehold import Agent, Elector
agent, go_on = Agent(os.environ["LEASEHOLD_AGENT"]), threading.Event()
def lead(line):
    print("begins", line["term"])
    if line["term"] == 1:
        agent.call("POST", "begun")
    go_on.wait()
    print("ends", line["term"])
e = Elector(agent, "reports", on_leader=lead, on_leader_loss=lambda: print("revoked"))
e.start()
input()
go_on.set()
input()
`))
	g.want("begins 1", "revoked")
	for _, want := range []string{"/v1/holds/1/done", "/v1/holds/2/done"} {
		if got := <-done; got != want {
			t.Errorf("the client sends %s, want %s", got, want)
		}
	}
	g.enter()
	g.want("ends 1", "begins 3", "ends 3")
	g.enter()
	g.wantEnd()
}

// on_leader_loss may call stop: when the term is lost, and when stop has called it.
func TestPythonStopsInLoss(t *testing.T) {
	python := languages[0]
	for _, lost := range []bool{true, false} {
		p := newPlace(t)
		g := p.start(python, python.needs(t, `
import os, threading
from leasehold import Agent, Elector
threading.excepthook = lambda e: print(e.exc_value)
def stop():
    e.stop()
    print("revoked")
e = Elector(Agent(os.environ["LEASEHOLD_AGENT"]), "reports", on_leader=lambda _: print("elected"), on_leader_loss=stop)
e.start()
input()
e.stop()
print("stopped")
`))
		g.want("elected")
		if lost {
			go admin.New(p.locks).Break(context.Background(), "reports")
			g.want("revoked")
			g.enter()
			g.want("stopped")
		} else {
			g.enter()
			g.want("revoked", "stopped")
		}
		g.wantEnd()
	}
}

// A listener's exception ends the election and reaches the process; the election is not tried again each second.
func TestNodeListenerThrows(t *testing.T) {
	node := languages[1]
	for _, event := range []string{"e.on('error', print)", "process.on('uncaughtException', print)"} {
		p := newPlace(t)
		g := p.start(node, node.needs(t, `
import { Agent, Elector } from './leasehold.mjs'
const e = new Elector(new Agent(process.env.LEASEHOLD_AGENT), 'reports')
const print = (e) => console.log(e.message)
e.on('elected', () => { throw new Error('mine') }).on('revoked', () => console.log('revoked')).start()
`+event))
		g.want("revoked", "mine")
		g.wantEnd()
	}
}

// When no sign of life comes, the response stays open while the work stops: the agent may be only slow, and then elect another.
func TestNodeStopsBeforeItCloses(t *testing.T) {
	closed := make(chan struct{})
	p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			say(w, `{"elected":"reports","id":"i","term":1,"token":1,"left_ms":50,"grace_ms":60000}`)
			<-r.Context().Done()
			close(closed)
			return
		}
		select {
		case <-closed:
			t.Error("the response is closed while the work stops")
		case <-time.After(200 * time.Millisecond):
		}
		w.WriteHeader(http.StatusNoContent)
	})
	node := languages[1]
	g := p.start(node, node.needs(t, `
import { Agent, Elector } from './leasehold.mjs'
const agent = new Agent(process.env.LEASEHOLD_AGENT)
new Elector(agent, 'reports').on('revoked', async () => {
  await agent.call('POST', ['stops'])
  console.log('stopped')
  process.exit()
}).start()
`))
	g.want("stopped")
	g.wantEnd()
}

// The clock of Node's client is one that goes on while a machine sleeps.
func TestNodeSleeps(t *testing.T) {
	p := newPlace(t)
	node := languages[1]
	g := p.start(node, node.needs(t, `
import { once } from 'node:events'
import os from 'node:os'
import { Agent, Elector } from './leasehold.mjs'
const agent = new Agent(process.env.LEASEHOLD_AGENT), e = new Elector(agent, 'reports'), uptime = os.uptime
e.start()
await once(e, 'elected')
await agent.lock('k', (hold) => {
  console.log(hold.lost, e.isLeader())
  os.uptime = () => uptime() + 60
  console.log(hold.lost, e.isLeader())
})
process.exit()
`))
	g.want("false true", "true false")
	g.wantEnd()
}

// A result that is not text comes back as it was.
func TestBinaryResult(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		text := l.needs(t, map[string]string{
			"Python": `
import os
from leasehold import Agent
for _ in range(2):
    with Agent(os.environ["LEASEHOLD_AGENT"]).run("bytes") as run:
        if run:
            run.value = b"\xff\x00"
print(run.value.hex())
`,
			"Node": `
import { Agent } from './leasehold.mjs'
const run = () => new Agent(process.env.LEASEHOLD_AGENT).run('bytes', () => Buffer.from('ff00', 'hex'))
await run()
console.log((await run()).toString('hex'))
`,
		}[l.name])
		g := newPlace(t).start(l, text)
		g.want("ff00")
		g.wantEnd()
	})
}

// A loss and a missing answer to done are two things.
func TestUnconfirmed(t *testing.T) {
	for status, want := range map[int]string{404: "Lost", 410: "Lost", 502: "Unconfirmed", 504: "Unconfirmed"} {
		p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				w.WriteHeader(status)
				say(w, `{"error":"no"}`)
				return
			}
			say(w, `{"held":"k","id":"i","token":1,"left_ms":30000,"grace_ms":1000}`)
			<-r.Context().Done()
		})
		python := languages[0]
		g := p.start(python, python.needs(t, `
import os
from leasehold import Agent, Lost, Unconfirmed
try:
    with Agent(os.environ["LEASEHOLD_AGENT"]).run("k"): pass
except (Lost, Unconfirmed) as e:
    print(type(e).__name__)
`))
		g.want(want)
		g.wantEnd()
	}
}

// A response that does not begin with a hold is closed, also while its error is kept.
func TestPythonClosesRefused(t *testing.T) {
	closed := make(chan struct{})
	p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		say(w, `{"error":"no"}`)
		<-r.Context().Done()
		close(closed)
	})
	python := languages[0]
	g := p.start(python, python.needs(t, `
import os
from leasehold import Agent, Lost
hold = Agent(os.environ["LEASEHOLD_AGENT"]).lock("k")
try:
    hold.__enter__()
except Lost as e:
    print(e)
input()
`))
	g.want("no")
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the response is open")
	}
	g.enter()
	g.wantEnd()
}

// A shell whose lock is lost ends although the agent does not answer.
func TestShellEndsWithoutAgent(t *testing.T) {
	p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			say(w, `{"held":"k","id":"i","token":1,"left_ms":30000,"grace_ms":100}`)
			say(w, `{"lost":"broken","grace_ms":100}`)
		}
		<-r.Context().Done()
	})
	shell := languages[2]
	g := p.start(shell, shell.needs(t, ". ./leasehold.sh\nwith_lock k sleep 60 || echo $?"))
	g.want("114")
	g.wantEnd()
}

// While a client waits for a lock over TCP, its kernel asks whether the agent's machine lives: at the latest after 2 minutes.
func TestKeepAlive(t *testing.T) {
	each(t, func(t *testing.T, l language) {
		ports := make(chan string, 1)
		p := newFake(t, func(w http.ResponseWriter, r *http.Request) {
			_, port, _ := net.SplitHostPort(r.RemoteAddr)
			ports <- port
			<-r.Context().Done()
		})
		p.start(l, l.needs(t, l.hold))
		port, err := strconv.Atoi(<-ports)
		if err != nil {
			t.Fatal(err)
		}
		server := fmt.Sprintf("0100007F:%04X", p.server.Listener.Addr().(*net.TCPAddr).Port)
		var timer string // the kind of the next timer, of which 02 is keep-alive, and the time until then in 1/100 s
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			table, err := os.ReadFile("/proc/net/tcp")
			if err != nil {
				t.Skip(err)
			}
			for line := range strings.Lines(string(table)) {
				if f := strings.Fields(line); len(f) > 5 && f[1] == fmt.Sprintf("0100007F:%04X", port) && f[2] == server {
					timer = f[5]
				}
			}
			kind, left, _ := strings.Cut(timer, ":")
			if n, err := strconv.ParseInt(left, 16, 64); kind == "02" && err == nil && n <= 120*100 {
				return
			}
		}
		t.Errorf("the timer of port %d is %q", port, timer)
	})
}

// What docs/other-languages.md shows runs.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{
		"Python": `
import os
from leasehold import Agent
invoices, charge = [7], lambda invoice, token: print("charged", token > 0)
`,
		"Node": `
import { Agent } from './leasehold.mjs'
const agent = new Agent(process.env.LEASEHOLD_AGENT), invoices = [7]
const charge = async (invoices, { token, signal }) => console.log('charged', token > 0 && !signal.aborted ? 'True' : 'False')
`,
	}
	each(t, func(t *testing.T, l language) {
		l.needs(t, before[l.name])
		_, text, _ := strings.Cut(string(page), map[string]string{"Python": "\n```python\n", "Node": "\n```js\n"}[l.name])
		text, _, _ = strings.Cut(text, "```")
		g := newPlace(t).start(l, before[l.name]+strings.Replace(text, `"http://localhost:7474"`, `os.environ["LEASEHOLD_AGENT"]`, 1))
		g.want("charged True")
		g.wantEnd()
	})
}
