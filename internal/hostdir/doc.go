// Package hostdir tells the processes of one machine that another process has died. Each session has a locked file in a
// shared folder. The kernel releases the lock when the process ends, in whatever way, and not before. So a free lock
// proves that the process no longer runs.
//
// A live process must never be taken for dead:
//
//   - A process that is stopped, is being debugged or writes a core dump still has its memory, and with it the lock.
//   - The lock is held by a mapping of the file, not by a descriptor. So it survives code that closes descriptors which
//     are not its own, by a double close or to become a daemon. A forked child that has not called exec has the mapping
//     too, and keeps the lock while it lives; exec removes the mapping. fcntl locks would not do, because closing any
//     descriptor of the file drops them and children do not inherit them.
//   - A file's mark is a hash of the machine's boot id and the file's device and inode. No other file can have the same
//     device and inode while the file is mapped. So a file with the same name in a copied folder, in a folder of
//     another machine or container, or from before a reboot is not mistaken for the session's file. A folder mounted in
//     several places is one folder, and namespaces of process ids do not matter.
//   - The folder must be on a file system that is known to be local. Elsewhere a lock may belong to a server, which
//     drops it when the network fails, or may be visible on one machine only.
//   - [Open] tests whether a mapping keeps a lock. On a container's overlay file system, for example, it does not,
//     because the mapped file is not the locked file.
//
// A process that was checkpointed and restored later, for example by CRIU, counts as dead.
package hostdir
