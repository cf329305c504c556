package hostdir_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/hostdir"
)

// If these environment variables are set, the test binary acts as the process that has the lock. It locks the file of
// the session "a" in the folder that the first variable names, and does what the second variable says. Then it prints
// the file's mark and the process id of its child, and waits until it is killed.
const folder, then = "LEASEHOLD_HOSTDIR", "LEASEHOLD_HOSTDIR_THEN"

func TestMain(m *testing.M) {
	if path := os.Getenv(folder); path != "" {
		own(path, os.Getenv(then))
	}
	os.Exit(m.Run())
}

// own never returns.
func own(path, then string) {
	d, err := hostdir.Open(path)
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	mark, _, err := d.Lock("a")
	if err != nil {
		fmt.Println("lock:", err)
		os.Exit(1)
	}
	child := 0
	switch then {
	case "close every descriptor":
		for fd := 3; fd < 100; fd++ {
			// Spare the descriptors of the Go runtime's poller: without them, the runtime could end the process at any
			// time.
			if what, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); strings.HasPrefix(what, "anon_inode:") {
				continue
			}
			syscall.Close(fd)
		}
	case "fork":
		if child = fork(); child == 0 {
			for {
				syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
	case "exec a child":
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			fmt.Println("exec:", err)
			os.Exit(1)
		}
		child = cmd.Process.Pid
	}
	fmt.Println(mark, child)
	os.Stdout.Close()
	for {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// fork returns 0 in the child, which may then only make system calls.
//
//go:norace
func fork() int {
	pid, _, _ := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	return int(pid)
}

// An owner is a process that has locked the file of the session "a".
type owner struct {
	cmd   *exec.Cmd
	mark  string
	child int
}

func startOwner(t *testing.T, path, what string) *owner {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{cmd: exec.Command(self)}
	o.cmd.Env = append(os.Environ(), folder+"="+path, then+"="+what)
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.cmd.Process.Kill()
		o.cmd.Wait()
		if o.child != 0 {
			syscall.Kill(o.child, syscall.SIGKILL)
		}
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(line[:n]), &o.mark, &o.child); err != nil {
		t.Fatalf("the owner says %q: %v", line[:n], err)
	}
	return o
}

// kill ends the owner and waits until it has ended.
func (o *owner) kill() {
	o.cmd.Process.Kill()
	o.cmd.Wait()
}

// open creates and opens a folder on a file system that Open accepts.
func open(t *testing.T) (*hostdir.Dir, string) {
	t.Helper()
	path := t.TempDir()
	d, err := hostdir.Open(path)
	if err != nil {
		if path, err = os.MkdirTemp("/dev/shm", "hostdir"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(path) })
		if d, err = hostdir.Open(path); err != nil {
			t.Fatal(err)
		}
	}
	return d, path
}

func wantDead(t *testing.T, when string, d *hostdir.Dir, mark string, want bool) {
	t.Helper()
	if got := d.Dead("a", mark); got != want {
		t.Errorf("%s: Dead = %t; want %t", when, got, want)
	}
}

// The lock becomes free when its owner ends, and not earlier, even if the owner is stopped or closes file descriptors
// that belong to other code.
func TestOnlyADeathFreesTheLock(t *testing.T) {
	for _, what := range []string{"", "close every descriptor"} {
		t.Run(what, func(t *testing.T) {
			d, path := open(t)
			o := startOwner(t, path, what)
			wantDead(t, "while it lives", d, o.mark, false)
			o.cmd.Process.Signal(syscall.SIGSTOP)
			var state syscall.WaitStatus
			if _, err := syscall.Wait4(o.cmd.Process.Pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
				t.Fatalf("%v, %v; want it to be stopped", state, err)
			}
			wantDead(t, "while it is stopped", d, o.mark, false)
			o.kill()
			wantDead(t, "after its death", d, o.mark, true)
			wantDead(t, "looked at again", d, o.mark, true)
		})
	}
}

// A process that closes its session unlocks the session's file, but is still alive. Another process may have opened the
// file earlier but try the lock only now. That process must not take the first one for dead.
func TestUnlockIsNoDeath(t *testing.T) {
	d, path := open(t)
	mark, unlock, err := d.Lock("a")
	if err != nil {
		t.Fatal(err)
	}
	dead := d.Opened("a", mark)
	unlock()
	if dead() {
		t.Error("the file was opened before the unlock and its lock tried afterwards: Dead reports true for a live process")
	}
	wantDead(t, "when the lock has ended", d, mark, false)

	// Dead must not return true either if another file has the name by the time the lock is tried.
	if mark, unlock, err = d.Lock("a"); err != nil {
		t.Fatal(err)
	}
	dead = d.Opened("a", mark)
	unlock()
	if err := os.WriteFile(filepath.Join(path, "a.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dead() {
		t.Error("the name now belongs to another file: Dead reports true for a live process")
	}
}

// A forked child keeps the lock until it calls exec or ends.
func TestForkKeepsTheLock(t *testing.T) {
	d, path := open(t)
	o := startOwner(t, path, "fork")
	o.kill()
	wantDead(t, "while its child lives", d, o.mark, false)
	syscall.Kill(o.child, syscall.SIGKILL)
	eventually(t, "the lock is free", func() bool { return d.Dead("a", o.mark) })
}

// A program that the owner starts with fork and exec does not keep the owner's lock.
func TestExecDropsTheLock(t *testing.T) {
	d, path := open(t)
	o := startOwner(t, path, "exec a child")
	o.kill()
	wantDead(t, "while its child lives", d, o.mark, true)
	if err := syscall.Kill(o.child, 0); err != nil {
		t.Errorf("the child: %v; want it to live", err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 5s, still not: %s", what)
		}
	}
}

// A free lock proves a death only if the machine has not rebooted since the file was locked, and only if the file is
// the one that was locked, not a copy.
func TestOtherFilesAreNotTheSessions(t *testing.T) {
	d, path := open(t)
	o := startOwner(t, path, "")
	copied, elsewhere := open(t)
	if out, err := exec.Command("cp", "-a", filepath.Join(path, "a.lock"), elsewhere).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantDead(t, "a copy, while it lives", copied, o.mark, false)
	o.kill()
	wantDead(t, "the file", d, o.mark, true)
	wantDead(t, "after a reboot, or on another machine", d.OfBoot("b"), o.mark, false)
	wantDead(t, "with another file's mark", d, strings.Repeat("0", len(o.mark)), false)
	wantDead(t, "without a mark", d, "", false)
	wantDead(t, "a copy", copied, o.mark, false)
	if err := os.Rename(filepath.Join(elsewhere, "a.lock"), filepath.Join(path, "a.lock")); err == nil {
		wantDead(t, "a copy in its place", d, o.mark, false)
	}
}

// A folder that is mounted in two places is still the same folder.
func TestBindMount(t *testing.T) {
	d, path := open(t)
	at := t.TempDir()
	if err := syscall.Mount(path, at, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(at, 0) })
	mounted, err := hostdir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	o := startOwner(t, path, "")
	heard := listen(t, mounted, o.mark)
	wantDead(t, "mounted", mounted, o.mark, false)
	o.kill()
	wantDead(t, "after its death, mounted", mounted, o.mark, true)
	wantHeard(t, heard)
	if _, _, err := d.Lock("a"); err == nil {
		t.Error("a second Lock of the same session returned no error")
	}
}

// On an overlay, where a mapping does not keep the lock, Open refuses the folder, and Lock fails.
func TestOverlayIsRefused(t *testing.T) {
	_, path := open(t)
	at := t.TempDir()
	for _, name := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(path, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", path)); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(at, 0) })
	if _, err := hostdir.Open(at); err == nil || !strings.Contains(err.Error(), "it must be on tmpfs") {
		t.Errorf("Open on an overlay: %v; want an error that says where it may be", err)
	}
	if _, _, err := hostdir.At(at).Lock("a"); err == nil || !strings.Contains(err.Error(), "does not keep a lock") {
		t.Errorf("Lock on an overlay: %v; want an error that says that the lock is not kept", err)
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) != 0 {
		t.Errorf("Lock has left %v, %v", entries, err)
	}
}

func TestNetworkFileSystemsAreNotLocal(t *testing.T) {
	for name, magic := range map[string]int64{
		"nfs": 0x6969, "smb2": 0xfe534d42, "cifs": 0xff534d42, "fuse": 0x65735546, "ceph": 0x00c36400, "9p": 0x01021997,
		"afs": 0x5346414f, "ocfs2": 0x7461636f, "gfs2": 0x01161970, "overlay": 0x794c7630,
	} {
		if hostdir.Local(magic) {
			t.Errorf("%s is taken for local", name)
		}
	}
	for name, magic := range map[string]int64{"tmpfs": 0x01021994, "ext4": 0xef53, "xfs": 0x58465342, "btrfs": 0x9123683e} {
		if !hostdir.Local(magic) {
			t.Errorf("%s is not taken for local", name)
		}
	}
}

// A death is noticed no matter which other files in the folder are closed.
func TestDeathIsHeardOf(t *testing.T) {
	d, path := open(t)
	o := startOwner(t, path, "")
	heard := listen(t, d, o.mark)
	if out, err := exec.Command("touch", filepath.Join(path, "a.lock")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantDead(t, "after somebody else has closed the file", d, o.mark, false)
	for i := range 40 { // other sessions that begin and end do not delay the notice of the death
		_, unlock, err := d.Lock(fmt.Sprint("other-", i))
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	began := time.Now()
	o.cmd.Process.Kill()
	wantHeard(t, heard)
	t.Logf("the death was noticed %v after SIGKILL", time.Since(began))
	d.Remove("a")
	wantDead(t, "removed", d, o.mark, false)
}

// listen watches the folder until the test ends. The watch has begun when listen returns. The channel gets a value when
// the process of the session "a" is found dead.
func listen(t *testing.T, d *hostdir.Dir, mark string) <-chan bool {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	looks, heard, ended := make(chan bool, 1), make(chan bool, 1), make(chan error, 1)
	go func() {
		ended <- d.Ended(ctx, func() {
			to := looks
			if d.Dead("a", mark) {
				to = heard
			}
			select {
			case to <- true:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-looks
	time.Sleep(300 * time.Millisecond) // from then on, only an event makes Ended call look
	return heard
}

func wantHeard(t *testing.T, heard <-chan bool) {
	t.Helper()
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Fatal("the death was not noticed within 5s")
	}
}

// After the folder has been removed, no death is noticed, and nothing can be locked.
func TestRemovedFolder(t *testing.T) {
	d, path := open(t)
	heard := listen(t, d, "")
	os.RemoveAll(path)
	if _, _, err := d.Lock("a"); err == nil {
		t.Error("Lock in a removed folder returned no error")
	}
	select {
	case <-heard:
		t.Error("a death was noticed")
	default:
	}
}

// An id from the store can't name a file outside the folder.
func TestIDsOfSessions(t *testing.T) {
	d, path := open(t)
	outside := filepath.Join(filepath.Dir(path), "x.lock")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"../x", "/../x", "", ".", "a/b"} {
		if d.Dead(id, d.Mark(outside)) {
			t.Errorf("Dead(%q) has found the file outside", id)
		}
		d.Remove(id)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("the file outside: %v", err)
	}
	os.Remove(outside)
}

func TestFoldersThatWillNotDo(t *testing.T) {
	_, path := open(t)
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"missing": filepath.Join(path, "missing"), "a file": file, "proc": "/proc"} {
		if _, err := hostdir.Open(path); err == nil {
			t.Errorf("Open of %s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 1 {
		t.Errorf("Open has left %v, %v; want only the file", entries, err)
	}
}
