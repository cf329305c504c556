package dsync_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/hostdir"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// If this environment variable names a folder, the test binary locks the file of session "a" in that folder, and waits
// until it is killed.
const hostDirOfA = "LEASEHOLD_HOSTDIR_OF_A"

func TestMain(m *testing.M) {
	if path := os.Getenv(hostDirOfA); path != "" {
		d, err := hostdir.Open(path)
		if err != nil {
			panic(err)
		}
		mark, _, err := d.Lock("a")
		if err != nil {
			panic(err)
		}
		fmt.Println(mark)
		os.Stdin.Read(make([]byte, 1)) // until it is killed
		os.Exit(0)
	}
	testkit.Main(m)
}

// newHostDir returns a folder that is suitable as HostDir.
func newHostDir(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	if _, err := hostdir.Open(path); err != nil {
		if path, err = os.MkdirTemp("/dev/shm", "hostdir"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(path) })
	}
	return path
}

// startHolder starts a process whose session "a" holds the key in the store; if the process crashes, the store keeps
// the hold for an hour.
func startHolder(t *testing.T, store driver.Store, path, key string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	noErr(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), hostDirOfA+"="+path)
	in, err := cmd.StdinPipe()
	noErr(t, err)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	kill = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait(); in.Close() })
	t.Cleanup(kill)
	var mark string
	if _, err := fmt.Fscan(out, &mark); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Register(background, driver.Member{ID: "a", TTL: time.Hour, HostFile: mark}); err != nil {
		t.Fatal(err)
	}
	c := driver.Claim{Key: key, ID: "a.1", Session: "a", Kind: driver.KindMutex, Weight: 1, Limit: 1}
	if _, err := store.Edit(background, driver.Edit{Acquire: &driver.Acquire{Claim: c, NotAfter: time.Now().Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	return kill
}

const hostMargin = 200 * time.Millisecond

// If a process dies, a waiter on the same machine gets its lock after a margin, and the process's file is removed.
func TestDeathOnThisMachineCostsAMargin(t *testing.T) {
	for _, when := range []string{"while it waits", "before it waits"} {
		t.Run(when, func(t *testing.T) {
			path, store := newHostDir(t), dsynctest.NewMemory()
			kill := startHolder(t, store, path, "k")
			s := newSession(t, store, &dsync.Options{HostDir: path, Margin: hostMargin, TTL: time.Minute})
			died := time.Now()
			if when == "before it waits" {
				kill()
			}
			held := make(chan time.Time)
			mu := s.Mutex("k")
			go func() {
				defer close(held)
				ctx, cancel := context.WithTimeout(background, 20*time.Second)
				defer cancel()
				if err := mu.LockContext(ctx); err != nil {
					t.Errorf("LockContext: %v", err)
					return
				}
				held <- time.Now()
				mu.Unlock()
			}()
			if when == "while it waits" {
				eventually(t, "it waits", func() bool { return queueLength(t, store, "k") == 1 })
				<-time.After(500 * time.Millisecond) // from now on the waiter checks HostDir only when it is notified of a change there
				died = time.Now()
				kill()
			}
			at, ok := <-held
			if !ok {
				return
			}
			took := at.Sub(died)
			t.Logf("held %v after the death; the margin is %v", took, hostMargin)
			if took < hostMargin {
				t.Errorf("the key was locked %v after the death; want at least the margin of %v", took, hostMargin)
			}
			eventually(t, "the file is removed", func() bool {
				left, err := filepath.Glob(filepath.Join(path, "a.lock"))
				return err == nil && len(left) == 0
			})
		})
	}
}

// eventually waits until ok returns true. Tests that start other processes use it, because they can't run in a bubble.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("still not true after 10s: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// A try gets a dead process's lock once a margin has passed since that process died on the same machine.
func TestTryAfterADeathOnThisMachine(t *testing.T) {
	path, store := newHostDir(t), dsynctest.NewMemory()
	kill := startHolder(t, store, path, "k")
	s := newSession(t, store, &dsync.Options{HostDir: path, Margin: hostMargin, TTL: time.Minute})
	mu := s.Mutex("k")
	wantErr(t, "a try while the holder lives", errOf(mu.TryHold(background)), dsync.ErrHeld)
	kill()
	eventually(t, "a try succeeds", mu.TryLock)
	mu.Unlock()
}

// Without HostDir, or with another folder, a session does not learn that a process on its machine has died.
func TestDeathElsewhere(t *testing.T) {
	path, store := newHostDir(t), dsynctest.NewMemory()
	kill := startHolder(t, store, path, "k")
	kill()
	for name, path := range map[string]string{"without": "", "another": newHostDir(t)} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, store, &dsync.Options{HostDir: path, Margin: hostMargin, TTL: time.Minute})
			ctx, cancel := context.WithTimeout(background, 3*hostMargin)
			defer cancel()
			wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		})
	}
}

// filesOf reports which of the sessions' files exist. It fails the test if the process of a session looks dead.
func filesOf(t *testing.T, path string, store driver.Store, ids []string) (there []bool) {
	t.Helper()
	d, err := hostdir.Open(path)
	noErr(t, err)
	for _, id := range ids {
		m, _, err := storecmd.Members(background, store, id)
		if err != nil || len(m) != 1 || m[0].HostFile == "" {
			t.Fatalf("the record of %s: %+v, %v; want one with a HostFile", id, m, err)
		}
		if d.Dead(id, m[0].HostFile) {
			t.Errorf("the process of %s looks dead", id)
		}
		_, err = os.Stat(filepath.Join(path, id+".lock"))
		there = append(there, err == nil)
	}
	return there
}

// The file of a lost session stays locked for a TTL. Otherwise other processes would take this process for dead and not
// wait for its holders' grace. Close leaves the file of a session only if the grace of its holders may still be
// running.
func TestFileOfALostSession(t *testing.T) {
	path := newHostDir(t)
	var ids []string
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := newFaulty(t, store, nil)
		s := newSession(t, link, &dsync.Options{HostDir: path, TTL: ttl})
		lose := func() {
			link.Cut()
			time.Sleep(lease)
			link.Heal()
		}
		register := func() {
			t.Helper()
			id, err := engine.Of(s).Register(background)
			noErr(t, err)
			ids = append(ids, id)
		}
		want := func(when string, want ...bool) {
			t.Helper()
			if there := filesOf(t, path, store, ids); !slices.Equal(there, want) {
				t.Errorf("%s: existing files: %v; want %v", when, there, want)
			}
		}
		register()
		want("registered", true)
		lose()
		register()
		want("lost, and registered again", true, true)
		time.Sleep(ttl + time.Second)
		lose()
		register()
		want("the first was lost more than a TTL ago", false, true, true)
		noErr(t, s.Close(background))
		want("closed", false, true, false)
	})
}

// If Close can't unregister the session, its file is kept for about another TTL, because holders may not be done yet.
func TestFileAfterACloseThatCouldNotUnregister(t *testing.T) {
	path := newHostDir(t)
	bubble(t, func(t *testing.T) {
		store := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, store, &dsync.Options{HostDir: path, TTL: ttl})
		lock(t, s.Mutex("k"))
		store.Cut()
		ended, cancel := context.WithCancel(background)
		cancel()
		if err := s.Close(ended); err == nil {
			t.Error("Close returned no error")
		}
		closed := time.Now()
		left := func() int {
			files, _ := filepath.Glob(path + "/*")
			return len(files)
		}
		if left() != 1 {
			t.Errorf("%d files after Close; want the session's file, because its hold is still in use", left())
		}
		for left() > 0 && time.Since(closed) < time.Hour {
			time.Sleep(time.Second)
		}
		if after := time.Since(closed); after < ttl/2 || after > 3*ttl {
			t.Errorf("the file was left for %v after Close; want about a TTL", after)
		}
	})
}

// If a registration gets no answer, the session's file is kept. The registration may have succeeded, and without a
// locked file other processes would take this process for dead. If the registration turns out to have failed, or if the
// session closes, the file is removed.
func TestFileOfAFailedRegistration(t *testing.T) {
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprint("made: ", made), func(t *testing.T) { testFileOfAFailedRegistration(t, made) })
	}
}

func testFileOfAFailedRegistration(t *testing.T, made bool) {
	path := newHostDir(t)
	files := func() []string {
		left, _ := filepath.Glob(path + "/*")
		return left
	}
	bubble(t, func(t *testing.T) {
		fails := true
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			fails := fails && r.Method == dsynctest.MethodRegister
			return dsynctest.Fault{LoseReply: fails && made, LoseRequest: fails && !made}
		})
		s, closes := newSession(t, store, &dsync.Options{HostDir: path}), newSession(t, store, &dsync.Options{HostDir: path})
		if _, err := engine.Of(closes).Register(background); err == nil {
			t.Fatal("Register: no error")
		}
		wantErr(t, "Close", closes.Close(background), dsync.ErrNotUnregistered) // nobody knows whether the registration took effect
		if left := files(); len(left) != 0 {
			t.Errorf("after Close there is still %v; want no file", left)
		}
		if _, err := engine.Of(s).Register(background); err == nil {
			t.Fatal("Register: no error")
		}
		tried := files()
		fails = false
		lock(t, s.Mutex("k"))
		if left := files(); len(left) != 1 || slices.Equal(left, tried) != made {
			t.Errorf("first attempt: %v; after registration: %v; want one file each, the same one: %t", tried, left, made)
		}
	})
	if left, _ := filepath.Glob(path + "/*"); len(left) != 0 {
		t.Errorf("files left after Close: %v", left)
	}
}

// New refuses an unsuitable folder. If the folder vanishes later, locks still work.
func TestFolderThatWillNotDo(t *testing.T) {
	_, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{HostDir: "/proc"})
	if err == nil || !strings.Contains(err.Error(), `dsync: HostDir is "/proc"`) {
		t.Errorf("New with HostDir /proc: %v; want an error that names it", err)
	}
	path := newHostDir(t)
	var log bytes.Buffer
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{HostDir: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		os.RemoveAll(path)
		lock(t, s.Mutex("k"))
	})
	if !strings.Contains(log.String(), "the session has no file in HostDir") {
		t.Errorf("log: %s; want a warning", &log)
	}
}
