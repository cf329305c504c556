// Package hostdir tells the processes of one machine that another process has died. Each session has a locked file in a
// shared folder. The kernel releases the lock when the process ends, however it ends, and not before. So a free lock
// proves that the process no longer runs.
//
// A live process must never be taken for dead:
//
//   - A process that is stopped, is being debugged or writes a core dump still has its memory, and with it the lock.
//   - The lock is held by a mapping of the file, not by a descriptor. So the lock survives code that closes other
//     code's descriptors, by a double close or because it becomes a daemon. A forked child that has not called exec
//     has the mapping too, and keeps the lock while it lives; exec removes the mapping. fcntl locks would not do,
//     because closing any descriptor of the file drops them and children do not inherit them.
//   - A file's mark is a hash of the machine's boot id and the file's device and inode. While the file is mapped, no
//     other file can have the same device and inode. So no other file with the same name is mistaken for the session's
//     file: neither one in a copied folder, nor one of another machine or container, nor one from before a reboot. A
//     folder may be mounted in several places, and the processes may be in different PID namespaces.
//   - The folder must be on a file system that is known to be local. On other file systems a server may keep the lock,
//     and drop it when the network fails, or the lock may be visible on one machine only.
//   - [Open] tests whether a mapping keeps a lock. On a container's overlay file system, for example, a mapping does
//     not keep it, because there the mapped file is not the locked file.
//
// A process that was checkpointed and restored later, for example by CRIU, counts as dead.
package hostdir
