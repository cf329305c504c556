// Package hostdir tells the processes of one machine that another process has died. Each session has a locked file
// in a shared folder. The kernel releases the lock when the process ends, in whatever way, and not before. So a
// free lock proves that nothing of the process runs any more.
//
// Nothing but a death may look like a death:
//
//   - A process that is stopped, is being debugged or writes a core dump still has its memory, and with it the lock.
//   - A mapping of the file holds the lock, not a descriptor. So the lock survives code that closes descriptors it does
//     not own, by a double close or to become a daemon. A forked child that has not called exec has the mapping too, and
//     keeps the lock while it lives; exec removes the mapping. Locks of fcntl would not do: closing any descriptor of the
//     file drops them, and children do not inherit them.
//   - A file's mark is made of the machine's boot id and of the file's device and inode, which belong to no other file
//     while it is mapped. So a file of the same name in a copied folder, in a folder of another machine or
//     container, or from before a reboot is not mistaken for the session's. A folder mounted in several
//     places is one folder, and namespaces of process ids do not matter.
//   - The folder must be on a file system that is known to be local. Elsewhere a lock may belong to a server, which
//     drops it when the network fails, or may be visible on one machine only.
//   - [Open] tries out whether a mapping holds a lock. On a container's overlay, for example, it does not, because the
//     mapped file is not the locked one.
//
// A process that was checkpointed and is restored later, as by CRIU, counts as dead.
package hostdir
