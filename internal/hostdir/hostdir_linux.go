package hostdir

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A Dir is a folder shared by processes of one machine. Its methods may be called concurrently.
type Dir struct{ path, boot string }

// Open returns the folder at path, which must exist. It first tests that a mapping keeps a lock there.
func Open(path string) (*Dir, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && len(boot) < 32 {
		err = fmt.Errorf("it is %q", boot)
	}
	if err != nil {
		return nil, fmt.Errorf("the machine's boot id can't be read: %w", err)
	}
	var on syscall.Statfs_t
	if path, err = filepath.Abs(path); err == nil { // the working directory may change
		err = syscall.Statfs(path, &on)
	}
	if err != nil {
		return nil, err
	}
	if !local(int64(on.Type)) {
		return nil, fmt.Errorf("%s is on a file system of type %#x; it must be on tmpfs, ext, xfs, btrfs, f2fs or zfs, for example in /run or an emptyDir", path, on.Type)
	}
	d := &Dir{path, string(boot)}
	_, unlock, err := d.Lock("try-" + rand.Text())
	if err == nil {
		unlock()
	}
	return d, err
}

// local reports whether locks on a file system of the given statfs(2) type are kept by this kernel, not by
// a server.
func local(magic int64) bool {
	return slices.Contains([]uint32{0x01021994, 0xef53, 0x58465342, 0x9123683e, 0xf2f52010, 0x2fc12fc1}, uint32(magic))
}

// Lock creates and locks the file of a session; the file must not exist yet. The returned function unlock removes and
// unlocks the file. If unlock is not called, the file stays locked until the process ends. Until this machine reboots,
// mark identifies the file to the other processes on this machine. On other machines, mark means nothing.
func (d *Dir) Lock(session string) (mark string, unlock func(), err error) {
	path := d.file(session)
	// Open the file for writing, because Ended notices only the closing of files that were opened for writing.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", nil, err
	}
	var mapping []byte
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		mapping, err = syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_SHARED)
	}
	mark = d.mark(f)
	f.Close()
	if err == nil && d.Dead(session, mark) {
		err = errors.New("this file system does not keep a lock while the file is mapped; use another, such as tmpfs")
	}
	unlock = func() {
		// Remove the name before releasing the lock: see Dead. If the removal fails, keep the lock until the process
		// ends.
		if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
			syscall.Munmap(mapping)
		}
	}
	if err != nil {
		unlock()
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return mark, unlock, err
}

// file returns the path of a session's file. The id is escaped, because ids of other sessions come from the store and
// must not lead outside the folder.
func (d *Dir) file(session string) string {
	return filepath.Join(d.path, url.PathEscape(session)+".lock")
}

// mark returns the mark of a file, or "" if it can't be determined.
func (d *Dir) mark(f *os.File) string {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "leasehold %s %d %d", d.boot, st.Dev, st.Ino))
	return fmt.Sprintf("%x", sum[:16])
}

// Dead reports whether the session's file is in the folder, has the given mark, and is not locked. Dead never returns
// true while the session's process is alive, even if the process is unlocking the file.
func (d *Dir) Dead(session, mark string) bool {
	f, err := os.OpenFile(d.file(session), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close() // this also drops the lock that free takes as a test
	return d.free(f, session, mark)
}

// free does the work of Dead. f is the session's file, already open.
func (d *Dir) free(f *os.File, session, mark string) bool {
	if mark == "" || d.mark(f) != mark || syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
		return false
	}
	// A live process removes the name before it unlocks the file. It may have done both since f was opened, so check
	// that the name still exists.
	opened, err := f.Stat()
	named, gone := os.Lstat(d.file(session))
	return err == nil && gone == nil && os.SameFile(opened, named)
}

// Remove removes the file of a session that has expired.
func (d *Dir) Remove(session string) { os.Remove(d.file(session)) }

// Ended calls the function look several times when it begins to watch the folder, and again whenever a process may have
// died. It returns when ctx ends or an error occurs. If the folder is removed, Ended soon stops calling look, but does
// not return until ctx ends.
func (d *Dir) Ended(ctx context.Context, look func()) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := syscall.InotifyAddWatch(fd, d.path, syscall.IN_CLOSE_WRITE|syscall.IN_ONLYDIR); err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	for buf := make([]byte, 16<<10); ; {
		// The kernel reports a close a moment before it releases the lock, so look is called more than once. The content
		// of the events is ignored, because some events may have been lost.
		for i := 0; i < 16 && ctx.Err() == nil; i++ {
			look()
			time.Sleep(min(100*time.Microsecond<<i, 25*time.Millisecond))
		}
		if _, err := events.Read(buf); err != nil {
			return err
		}
	}
}
