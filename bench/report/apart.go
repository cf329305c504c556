package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// handOffApart is handOff between processes of the operating system, each with one session.
func (r *report) handOffApart(ctx context.Context) ([]row, error) {
	line := row{name: fmt.Sprintf("Hand-off between %d processes of the operating system", r.effort.apart), unit: "a raw write and its notice"}
	ps, end, err := r.players(ctx, mutexes, one, three)
	if err != nil {
		return nil, err
	}
	defer end()
	for i, p := range ps {
		ps[i].system = apart{r.lab.uris[p.column], p.target.DB.Name()}
	}
	line, err = r.ring(ctx, line, r.effort.apart, ps)
	return []row{line}, err
}

// apart is the System whose processes are processes of the operating system.
type apart struct{ uri, database string }

var _ measure.System = apart{}

// lockerVariable is the environment variable with the arguments of lockerMain; only lockers have it.
const lockerVariable = "LEASEHOLD_BENCH_LOCKER"

// Open implements [measure.System].
func (a apart) Open(context.Context) (measure.Process, error) { return &locker{apart: a}, nil }

// A locker is a process of this program with one session and one Mutex. It locks and unlocks the Mutex as its standard
// input says, and prints when it has done so. It exits when its standard input closes.
type locker struct {
	apart
	cmd   *exec.Cmd // nil: Locker has not been called
	in    io.WriteCloser
	lines *bufio.Reader

	mu               sync.Mutex // locked by the call that waits for a line
	locked, unlocked time.Time
}

var _ measure.Clocked = (*locker)(nil)

// Locker implements [measure.Process]. It starts the process, which is killed when ctx ends. Call it once.
func (l *locker) Locker(ctx context.Context, key string) (measure.Locker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l.cmd = exec.CommandContext(ctx, self)
	l.cmd.Env = append(os.Environ(), lockerVariable+"="+strings.Join([]string{l.uri, l.database, key}, "\n"))
	l.cmd.Stderr = os.Stderr
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.lines = bufio.NewReader(out)
	return l, l.cmd.Start()
}

// Close implements [measure.Process].
func (l *locker) Close() error {
	if l.cmd == nil {
		return nil
	}
	l.in.Close()
	return l.cmd.Wait()
}

// ask makes the process do something, and returns the time that it prints. When ctx ends, the process ends.
func (l *locker) ask(ctx context.Context, what string) (time.Time, error) {
	defer context.AfterFunc(ctx, func() { l.in.Close() })()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.in, what+"\n"); err != nil {
		return time.Time{}, err
	}
	var at int64
	_, err := fmt.Fscanln(l.lines, &at)
	return time.Unix(0, at), err
}

// Lock implements [measure.Locker].
func (l *locker) Lock(ctx context.Context) (err error) {
	l.locked, err = l.ask(ctx, "lock")
	return err
}

// Unlock implements [measure.Locker].
func (l *locker) Unlock(ctx context.Context) (err error) {
	l.unlocked, err = l.ask(ctx, "unlock")
	return err
}

// Locked and Unlocked implement [measure.Clocked].
func (l *locker) Locked() time.Time   { return l.locked }
func (l *locker) Unlocked() time.Time { return l.unlocked }

// If this process is a locker, lockerMain runs it and exits. Otherwise it does nothing.
func lockerMain() {
	args := strings.Split(os.Getenv(lockerVariable), "\n")
	if len(args) != 3 {
		return
	}
	s, err := dsyncmongo.Connect(context.Background(), options.Client().ApplyURI(args[0]), args[1], nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "report: locker %d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
	m, orders := s.Mutex(args[2]), make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
		go s.Close(context.Background())
		time.Sleep(time.Second)
		os.Exit(0) // the parent needs the process no more, or has exited
	}()
	for o := range orders {
		var at time.Time
		if o == "lock" {
			m.Lock()
			at = time.Now()
		} else {
			at = time.Now()
			m.Unlock()
		}
		fmt.Println(at.UnixNano())
	}
}
