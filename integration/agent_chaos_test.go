package integration_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

var agentChaosFor = flag.Duration("agentchaos.duration", 0, "how long TestAgentChaos injects faults; 0: the test is skipped, or takes 1m with LEASEHOLD_LONG set")

const agentChaosTTL = 6 * time.Second

// contested has how much of each key can be held at a time. A writer holds all of "rw".
var contested = map[string]int64{"a": 1, "b": 1, "rw": 100, "sem": 3}

// A contender tells the referee when it is at the door, which is before it checks its hold, when it is in, and when it has
// stopped. If the hold is lost, it takes up to a third of the grace to stop. This one is in Python, and uses an agent.
const pythonContender = `
import http.client, os, random, socket, threading, time
from leasehold import Agent, Held, Lost, Unconfirmed

agent, draw, finish = Agent(os.environ["AGENT"]), random.Random(os.environ["SEED"]), threading.Event()
threading.Thread(target=lambda: (input(), finish.set()), daemon=True).start()
host, port = os.environ["REFEREE"].split(":")
referee = socket.create_connection((host, int(port))).makefile("rw")

def tell(*words):
    print(*words, file=referee, flush=True)
    if referee.readline() != "ok\n":
        raise SystemExit("the referee has gone")

tell("hello", "-", os.getpid())
print("ready", flush=True)
while not finish.is_set():
    key, weight, params = draw.choice([("a", 1, {}), ("b", 1, {}), ("rw", 1, {"mode": "shared"}), ("rw", 100, {"mode": "exclusive"}),
                                       ("sem", 1, {"of": 3}), ("sem", 2, {"of": 3, "n": 2})])
    try:
        with agent.lock(key, wait=draw.choice([0, 2, None]), **params) as hold:
            tell("door")
            try:
                hold.check()
                tell("in", key, weight, hold.token)
                for _ in range(draw.randrange(draw.choice(9 * [40] + [1600]))):
                    time.sleep(0.005)
                    hold.check()
            except Lost:
                time.sleep(draw.random() * hold.grace / 3)
            tell("out")
    except (Held, Lost, Unconfirmed, RuntimeError, ValueError, OSError, http.client.HTTPException):
        time.sleep(0.1)
`

// A contest is one way to hold a key.
type contest struct {
	key    string
	weight int64
	hold   func(context.Context) (*dsync.Hold, error)
}

func contests(s *dsync.Session, units int64) []contest {
	sem := func(ctx context.Context) (*dsync.Hold, error) {
		return s.Semaphore("sem", contested["sem"]).Hold(ctx, units)
	}
	return []contest{
		{"a", 1, s.Mutex("a").Hold}, {"b", 1, s.Mutex("b").Hold}, {"sem", units, sem},
		{"rw", 1, s.RWMutex("rw").RHold}, {"rw", contested["rw"], s.RWMutex("rw").Hold},
	}
}

// contending is a contender in Go, with a session of its own.
func contending(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, nil)
	conn, err := net.Dial("tcp", os.Getenv("REFEREE"))
	if err != nil {
		env.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	tell := func(words ...any) {
		fmt.Fprintln(conn, words...)
		if _, err := answers.ReadString('\n'); err != nil {
			env.Fatal(err)
		}
	}
	tell("hello", "-", os.Getpid())
	env.Emit(proc.Event{Name: "ready"})
	draw := lab.Rand(os.Getenv("SEED"))
	try := func(c contest, wait time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		h, err := c.hold(ctx)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			return
		}
		defer h.Release(context.Background())
		tell("door")
		defer tell("out")
		if token := h.Token(); token != 0 {
			tell("in", c.key, c.weight, token)
			most := 40
			if draw.IntN(10) == 0 {
				most = 1600 // 8 s, longer than the TTL
			}
			for range draw.IntN(most) {
				time.Sleep(5 * time.Millisecond)
				if h.Token() == 0 {
					time.Sleep(time.Duration(draw.Int64N(int64(a.TTL / 30))))
					return
				}
			}
		}
	}
	for all := contests(s, 2); ; {
		select {
		case <-env.Orders():
			if err := s.Close(context.Background()); err != nil {
				env.Fatal(err)
			}
			return
		default:
			try(all[draw.IntN(len(all))], []time.Duration{a.TTL / 100, 3 * a.TTL}[draw.IntN(2)])
		}
	}
}

// A chaos lets contenders in Python and in Go hold the same keys, kills and stops them and the agents, breaks keys, and is
// the referee.
type chaos struct {
	t           *testing.T
	mu          sync.Mutex
	targets     []*target
	ending      bool             // the targets may exit
	last, whole map[string]int64 // the greatest token of each key, and that of a hold of all of it
	counts      map[string]int
}

// A target is a contender or an agent. Its process is started again when it has been killed.
type target struct {
	kind    string // "agent", "python" or "go"
	name    string
	command func(starts int) *exec.Cmd
	clients []*target  // of an agent: the contenders on its machine
	asleep  sync.Mutex // while the machine of a client sleeps, or only the client
	starts  int
	holds   int
	*life
}

// A life is that of one process. A contender that is stopped between the door and the way out is excused: no library can
// keep it from going on when it wakes up.
type life struct {
	cmd                            *exec.Cmd
	stdin                          io.Writer
	exited                         chan struct{}
	killed, stopped, door, excused bool
	key                            string // that it is inside for
	weight                         int64
}

// start starts the process, and waits until it is ready.
func (c *chaos) start(p *target) {
	p.starts++
	var stderr bytes.Buffer
	l := &life{cmd: p.command(p.starts), exited: make(chan struct{})}
	l.cmd.Stderr = &stderr
	in, err1 := l.cmd.StdinPipe()
	out, err2 := l.cmd.StdoutPipe()
	l.stdin = in
	c.mu.Lock() // the process can greet the referee before Start returns
	err := errors.Join(err1, err2, l.cmd.Start())
	if err == nil {
		p.life = l
		if p.starts == 1 {
			c.targets = append(c.targets, p)
		}
	}
	c.mu.Unlock()
	if err != nil {
		c.t.Errorf("%s: %v", p.name, err)
		return
	}
	_, _ = bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(l.exited)
		err := l.cmd.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !l.killed && (err != nil || !c.ending) {
			c.t.Errorf("%s ended by itself: %v\n%s", p.name, err, &stderr)
		}
	}()
}

// signal sends a signal to the target's process, after the referee has learned of it.
func (c *chaos) signal(p *target, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.killed = p.killed || s == syscall.SIGKILL
	p.stopped = s == syscall.SIGSTOP
	p.excused = p.excused || p.stopped && p.door
	if p.killed {
		p.key = ""
	}
	if s != syscall.SIGCONT {
		c.counts[fmt.Sprint(p.kind, " ", s)]++
	}
	_ = p.cmd.Process.Signal(s) // an error means that it has ended, which start reports
}

// torment injects faults into one target until the end. Then the target runs.
func (c *chaos) torment(p *target, end time.Time) {
	draw := lab.Rand(c.t.Name(), p.name)
	sleep := func(d time.Duration) { time.Sleep(time.Duration(draw.Int64N(int64(d)))) }
	for sleep(2 * agentChaosTTL); time.Now().Before(end); sleep(2 * agentChaosTTL) {
		if draw.IntN(3) == 0 {
			c.signal(p, syscall.SIGKILL)
			<-p.exited
			sleep(time.Second)
			c.start(p)
			continue
		}
		if len(p.clients) > 0 && draw.IntN(2) == 0 {
			c.suspend(p, sleep)
			continue
		}
		p.asleep.Lock()
		c.signal(p, syscall.SIGSTOP)
		sleep([]time.Duration{agentChaosTTL / 6, agentChaosTTL / 6, agentChaosTTL * 3 / 2}[draw.IntN(3)])
		c.signal(p, syscall.SIGCONT)
		p.asleep.Unlock()
	}
}

// suspend stops an agent and its clients for longer than the TTL, as a machine that sleeps. A client may be given a key
// between the two stops, and reads that when it wakes, before the agent does: then the key is another's.
func (c *chaos) suspend(agent *target, sleep func(time.Duration)) {
	for _, p := range agent.clients {
		p.asleep.Lock()
		defer p.asleep.Unlock()
	}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, p := range agent.clients {
			c.signal(p, s)
		}
		sleep(agentChaosTTL / 6)
		c.signal(agent, s)
		if s == syscall.SIGSTOP {
			sleep(agentChaosTTL)
			time.Sleep(agentChaosTTL)
		}
	}
}

// breakKeys breaks random keys until the end.
func (c *chaos) breakKeys(all *admin.Inspector, end time.Time) {
	draw, keys := lab.Rand(c.t.Name(), "operator"), slices.Sorted(maps.Keys(contested))
	for ; time.Now().Before(end); time.Sleep(time.Duration(draw.Int64N(int64(agentChaosTTL / 10)))) {
		ctx, cancel := context.WithTimeout(context.Background(), agentChaosTTL)
		_ = all.Break(ctx, keys[draw.IntN(len(keys))]) // an error means that a holder is stopped
		cancel()
		c.mu.Lock()
		c.counts["breaks"]++
		c.mu.Unlock()
	}
}

// serve is the referee for one process.
func (c *chaos) serve(conn net.Conn) {
	defer conn.Close()
	var p *target
	var l *life
	for lines := bufio.NewScanner(conn); lines.Scan(); fmt.Fprintln(conn, "ok") {
		var what, key string
		var n, token int64
		_, _ = fmt.Sscan(lines.Text(), &what, &key, &n, &token)
		c.mu.Lock()
		switch what {
		case "hello":
			for _, o := range c.targets {
				if o.cmd.Process.Pid == int(n) {
					p, l = o, o.life
				}
			}
			if p == nil { // it was killed meanwhile
				c.mu.Unlock()
				return
			}
		case "door":
			l.door, l.excused = true, l.stopped
		case "in":
			if !l.killed {
				l.key, l.weight = key, n
				p.holds++
				c.judge(p, token)
			}
		case "out":
			l.door, l.key = false, ""
		}
		c.mu.Unlock()
	}
}

// judge judges a contender that has entered. It needs c.mu.
func (c *chaos) judge(p *target, token int64) {
	c.counts["holds of "+p.kind]++
	if p.excused {
		c.counts["stopped at the door"]++
		return
	}
	sum, inside := int64(0), []string{}
	for _, o := range c.targets {
		if o.key == p.key && !o.excused {
			sum += o.weight
			inside = append(inside, fmt.Sprintf("%s (%d)", o.name, o.weight))
		}
	}
	most := contested[p.key]
	if sum > most {
		c.counts["overlaps"]++
		c.t.Errorf("%v are in for %s, more than %d: %s has come with token %d", inside, p.key, most, p.name, token)
	}
	before := c.whole[p.key]
	if p.weight == most {
		before = c.last[p.key]
		c.whole[p.key] = max(token, before)
	}
	if token <= before {
		c.t.Errorf("%s comes in for %s with token %d after one with %d", p.name, p.key, token, before)
	}
	c.last[p.key] = max(token, c.last[p.key])
}

// Half of the contenders for some keys are in Python and use agents, the others are in Go. Whatever happens to them and to
// the agents, no two that exclude each other are in at a time, and tokens grow. When all faults are healed, all contenders
// make progress, and at the end all keys are free.
func TestAgentChaos(t *testing.T) {
	lab.Servers(t) // skips the test if there is no server
	if *agentChaosFor == 0 && !testkit.Long() {
		lab.Skip(t, nil, "its faults are random, so it runs only with LEASEHOLD_LONG or -agentchaos.duration")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		lab.Skip(t, nil, err.Error())
	}
	bin := leasehold.path(t)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const agents, each = 2, 4
		r := newRoom(t, s)
		operator := r.session(r.short(patient))
		referee, err := net.Listen("tcp", "127.0.0.1:0")
		noErr(t, err)
		dir, err := os.MkdirTemp("", "leasehold") // the name of t.TempDir is too long for a socket
		noErr(t, err)
		c := &chaos{t: t, last: make(map[string]int64), whole: make(map[string]int64), counts: map[string]int{"overlaps": 0}}
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := referee.Accept()
				if err != nil {
					return
				}
				serving.Go(func() { c.serve(conn) })
			}
		})
		t.Cleanup(func() {
			for _, p := range c.targets {
				c.signal(p, syscall.SIGKILL)
				<-p.exited
			}
			referee.Close()
			serving.Wait()
			os.RemoveAll(dir)
		})
		start := func(kind string, i int, folder string, env []string, args ...string) *target {
			name := fmt.Sprint(kind, " ", i)
			p := &target{kind: kind, name: name, command: func(starts int) *exec.Cmd {
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Dir = folder
				cmd.Env = append(append(os.Environ(), env...), "PYTHONDONTWRITEBYTECODE=1", "MONGODB_URI=",
					"REFEREE="+referee.Addr().String(), fmt.Sprintf("SEED=%d %s %d", lab.Seed, name, starts))
				return cmd
			}}
			c.start(p)
			return p
		}
		self, err1 := os.Executable()
		args, err2 := json.Marshal(r.args(r.short(agentChaosTTL)))
		noErr(t, errors.Join(err1, err2))
		at := func(i int) string { return "unix:" + filepath.Join(dir, fmt.Sprint(i%agents)) }
		var machines [agents]*target
		for i := range agents {
			machines[i] = start("agent", i, "", nil, bin, "agent", "--listen", at(i), "--uri", r.URI, "--db", r.DB,
				"--ttl", agentChaosTTL.String(), "--connect-timeout", "1m")
		}
		for i := range each {
			client := start("python", i, "../examples/languages", []string{"AGENT=" + at(i)}, "python3", "-c", pythonContender)
			machines[i%agents].clients = append(machines[i%agents].clients, client)
			start("go", i, "", []string{"LEASEHOLD_CHILD=contending", "LEASEHOLD_CHILD_ARGS=" + string(args)}, self)
		}

		if t.Failed() {
			return // one did not start
		}
		end := time.Now().Add(cmp.Or(*agentChaosFor, time.Minute))
		var faults sync.WaitGroup
		for _, p := range c.targets {
			faults.Go(func() { c.torment(p, end) })
		}
		faults.Go(func() { c.breakKeys(admin.New(operator), end) })
		faults.Wait()
		holds := func(p *target) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return p.holds
		}
		for _, p := range c.targets {
			before := holds(p)
			eventually(t, p.name+" holds a key after the faults", func() bool { return p.kind == "agent" || holds(p) > before })
		}

		c.mu.Lock()
		c.ending = true
		c.mu.Unlock()
		for _, p := range c.targets[agents:] {
			fmt.Fprintln(p.stdin, `{"do":"finish"}`)
		}
		for _, p := range slices.Backward(c.targets) { // the agents last
			if p.kind == "agent" {
				p.cmd.Process.Signal(syscall.SIGTERM)
			}
			eventually(t, p.name+" ends", func() bool { return closed(p.exited) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
		defer cancel()
		for _, way := range contests(operator, contested["sem"]) {
			h, err := way.hold(ctx)
			if err != nil {
				t.Fatalf("at the end %s is not free: %v", way.key, err)
			}
			release(t, h)
		}
		lab.Note(t, "seed %d: %v", lab.Seed, c.counts)
	})
}
