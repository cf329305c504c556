// Package hostdir tells the processes of one machine that another one of them has died. Each session has a locked
// file in a folder that they share. The kernel releases the lock when the process ends, in whatever way, and not
// before: so whoever finds the lock free has the kernel's word that nothing of the process runs any more.
//
// Nothing but a death may look like one:
//
//   - A process that is stopped, is being debugged or writes a core dump still has its memory, and with it the lock.
//   - The lock is held by a mapping of the file, not by a descriptor. So code that closes descriptors that are not its
//     own, as a double close or a library that makes daemons does, closes nothing here. A child that was forked
//     and has not called exec has the mapping too, and keeps the lock while it lives; exec ends the mapping. Locks of
//     fcntl would be wrong: any close of the file drops them, and children do not inherit them.
//   - The mark of a file is made of the machine's boot id and of the file's device and inode, which are one file's
//     only, as long as it is mapped. So the file of the same name in a copied folder, in another machine's or another
//     container's folder, or from before a reboot is not taken for the session's. The same folder mounted in several
//     places is one, and namespaces of process ids do not matter.
//   - The folder must be on a file system that is known to be local: elsewhere a lock may be one of the server's, which
//     drops it when the network fails, or each machine's own.
//   - [Open] tries all this out. An overlay of a container, for example, maps another file than the one that is locked.
//
// A process that was checkpointed and is restored later, as by CRIU, was dead in between.
package hostdir
