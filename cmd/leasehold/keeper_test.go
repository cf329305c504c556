//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A kept is a keeper whose command survives SIGTERM, as does the command's child.
type kept struct {
	*keeper
	t    *testing.T
	file string
}

func newKept(t *testing.T, o keep.Order) kept {
	t.Helper()
	k := kept{t: t, file: filepath.Join(t.TempDir(), "pids")}
	script := fmt.Sprintf(`trap 'echo term >>%s.term' TERM; (trap '' TERM; echo >%s.child; exec sleep 1000) & echo $$ $! >%s; while :; do wait; done`, k.file, k.file, k.file)
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	var err error
	if k.keeper, err = startKeeper(a, []string{"sh", "-c", script}, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.kill(); k.wait() })
	k.tell(o)
	k.pgid = (<-k.reports).Started
	eventually(t, "the command runs", func() bool { return strings.HasSuffix(read(t, k.file), "\n") && read(t, k.file+".child") != "" })
	return k
}

// alive returns the IDs of the command's two processes, except those that are dead.
func (k kept) alive() (pids []string) {
	for _, pid := range strings.Fields(read(k.t, k.file)) {
		if !dead(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hour() keep.Order {
	return keep.Order{Stop: keep.Clock() + time.Hour, Kill: keep.Clock() + 2*time.Hour}
}

// A keeper that receives no further deadline stops the command at the last deadline that it
// received.
func TestKeeperStopsAtTheDeadline(t *testing.T) {
	k := newKept(t, hour())
	now := keep.Clock()
	k.tell(keep.Order{Stop: now + 50*time.Millisecond, Kill: now + 300*time.Millisecond})
	k.tell(keep.Order{Signal: int(syscall.SIGUSR2)}) // SIGUSR2 ends sh, but not its child
	r := <-k.reports
	if end := keep.Clock(); !r.Stopped && r.Status != 128+12 || end < now {
		t.Errorf("the report is %+v", r)
	}
	if left := k.alive(); len(left) > 0 {
		t.Errorf("%v are alive after the report of the command's end", left)
	}

	k = newKept(t, hour())
	now = keep.Clock()
	k.tell(keep.Order{Stop: now + 50*time.Millisecond, Kill: now + 300*time.Millisecond})
	r = <-k.reports
	if took := keep.Clock() - now; !r.Stopped || r.Status != 128+9 || took < 300*time.Millisecond {
		t.Errorf("got report %+v after %v, want an end by SIGKILL at least 300ms after the order", r, took)
	}
	if got := read(t, k.file+".term"); got != "term\n" {
		t.Errorf("on SIGTERM the command wrote %q, want one line", got)
	}
	if left := k.alive(); len(left) > 0 {
		t.Errorf("%v are alive after the report of the command's end", left)
	}
}

// Once the keeper has begun to stop the command, a new deadline comes too late.
func TestKeeperStopsForGood(t *testing.T) {
	k := newKept(t, hour())
	k.tell(keep.Order{Stop: keep.Clock(), Kill: keep.Clock() + 500*time.Millisecond})
	eventually(t, "SIGTERM came", func() bool { return read(t, k.file+".term") != "" })
	k.tell(hour())
	if r := <-k.reports; !r.Stopped || r.Status != 128+9 {
		t.Errorf("got report %+v, want an end by SIGKILL", r)
	}
}

// A keeper does not start the command if the deadline has already passed, for example because
// leasehold was frozen.
func TestKeeperStartsNothingTooLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	k, err := startKeeper(&app{stdin: strings.NewReader("")}, []string{"touch", file}, false)
	noErr(t, err)
	k.tell(keep.Order{Stop: keep.Clock(), Kill: keep.Clock() + time.Hour})
	if r := <-k.reports; r.Started != 0 || !r.Stopped {
		t.Errorf("got report %+v, want a report that the command was stopped before its start", r)
	}
	k.wait()
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

// When leasehold dies, the keeper kills the command's group.
func TestKeeperKillsWhenLeaseholdDies(t *testing.T) {
	k := newKept(t, hour())
	k.orders.Close()
	if r := <-k.reports; r.Status != 128+9 {
		t.Errorf("got report %+v, want an end by SIGKILL", r)
	}
	if left := k.alive(); len(left) > 0 {
		t.Errorf("%v are alive after the report of the command's end", left)
	}
}

// The command dies with its keeper, and leasehold can kill the rest of the group, even if the
// keeper is frozen.
func TestKeeperKilledOrFrozen(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		k := newKept(t, hour())
		k.cmd.Process.Signal(s)
		if s == syscall.SIGKILL {
			if r, ok := <-k.reports; ok {
				t.Errorf("%v: got report %+v, want the reports closed", s, r)
			}
			command := strings.Fields(read(t, k.file))[0]
			eventually(t, "the command dies with its keeper", func() bool { return dead(command) })
		}
		k.kill()
		k.wait()
		if left := k.alive(); len(left) > 0 {
			t.Errorf("%v: processes %v are still alive", s, left)
		}
	}
}

// A signal to all processes of a service does not end the keeper.
func TestKeeperOutlivesSIGTERM(t *testing.T) {
	k := newKept(t, hour())
	k.cmd.Process.Signal(syscall.SIGTERM)
	k.tell(keep.Order{Signal: int(syscall.SIGTERM)})
	eventually(t, "the keeper forwards signals after SIGTERM", func() bool { return read(t, k.file+".term") != "" })
	if len(k.alive()) != 2 {
		t.Errorf("the processes %v are alive, want both", k.alive())
	}
}

// After the keeper has reported that job control stopped the command, it sends no further such report until leasehold
// continues the command. Leasehold may be stopped as well, and then it does not read reports.
func TestKeeperReportsJobControl(t *testing.T) {
	k := newKept(t, hour())
	shell := strings.Fields(read(t, k.file))[0]
	k.tell(keep.Order{Signal: int(syscall.SIGTSTP)})
	if r := <-k.reports; r != (keep.Report{Job: int(syscall.SIGTSTP)}) {
		t.Errorf("got report %+v, want a report of the stop by SIGTSTP", r)
	}
	syscall.Kill(-k.pgid, syscall.SIGCONT)
	eventually(t, "the command goes on", func() bool { return state(t, shell) != "T" })
	syscall.Kill(-k.pgid, syscall.SIGTSTP)
	eventually(t, "the command is stopped", func() bool { return state(t, shell) == "T" })
	select {
	case r := <-k.reports:
		t.Errorf("got report %+v, want none until leasehold continues the command", r)
	case <-time.After(100 * time.Millisecond):
	}
	k.tell(keep.Order{Signal: int(syscall.SIGCONT)})
	eventually(t, "the command goes on", func() bool { return state(t, shell) != "T" })
	k.tell(keep.Order{Signal: int(syscall.SIGTSTP)})
	if r := <-k.reports; r != (keep.Report{Job: int(syscall.SIGTSTP)}) {
		t.Errorf("got report %+v, want another report of a stop by SIGTSTP", r)
	}
}

// The keeper does its work before the packages of MongoDB's driver, of cobra and of leasehold itself are initialized:
// see package keep. What package unicode is needed for, and that is nearly everything, would come before the keeper.
func TestKeeperInitializesLittle(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", keep.Args(0, 1, "true", []string{"true"})...) // there are no orders, so it ends at once
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var log strings.Builder
	cmd.Stderr = &log
	noErr(t, cmd.Run())
	if !strings.Contains(log.String(), "init os/signal @") {
		t.Errorf("the trace of the keeper is %q, want that of os/signal, which the keeper needs", log.String())
	}
	for _, late := range []string{"unicode", "reflect", "fmt", "github.com/xdg-go/stringprep", "go.mongodb.org/mongo-driver/v2/bson"} {
		if strings.Contains(log.String(), "init "+late+" @") {
			t.Errorf("the package %s is initialized before the keeper: an import of package keep needs it", late)
		}
	}
}

// The keeper sends its last report when the command's group is dead. So the key is released without waiting for the end of
// the keeper itself, for which only end waits.
func TestKeepersEndDelaysNoRelease(t *testing.T) {
	cmd := exec.Command("sleep", "1000") // a keeper that does not end
	noErr(t, cmd.Start())
	ordersOut, orders, err := os.Pipe()
	noErr(t, err)
	defer ordersOut.Close()
	k := &keeper{cmd: cmd, orders: orders, reports: make(chan keep.Report, 1)}
	k.reports <- keep.Report{Status: 7}
	close(k.reports)
	sig := catch()
	defer sig.stop()
	hold := holdAs(t, session(t, dsynctest.NewMemory()), "k", driver.KindMutex)
	done := make(chan error, 1)
	go func() { done <- (&work{job: &job{key: "k"}, app: new(app), hold: hold, signals: sig, keeper: k}).do() }()
	select {
	case err := <-done:
		var f *failure
		if !errors.As(err, &f) || f.status != 7 {
			t.Errorf("got %v, want the status 7", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the work does not end before the keeper")
	}
	k.end()
	if !k.waited {
		t.Error("end has not waited for the keeper")
	}
}

// The patterns of packages trace and mongouri are for a recording and for a malformed connection string. So they are
// compiled when one is there, not at each start.
func TestNoPatternsBeforeMain(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	log, err := cmd.CombinedOutput()
	noErr(t, err)
	for _, line := range strings.Split(string(log), "\n") {
		for _, own := range []string{"trace", "mongouri"} {
			var allocs int
			if f := strings.Fields(line); len(f) > 2 && f[1] == "github.com/leasehold-go/leasehold/internal/"+own {
				fmt.Sscan(f[len(f)-2], &allocs)
			}
			if allocs > 10 { // a pattern takes about forty
				t.Errorf("package %s makes %d allocations before main, want only those of its errors", own, allocs)
			}
		}
	}
}
