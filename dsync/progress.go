package dsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// Progress reports that the holder makes progress, and has the hold end unless Progress is called
// again within limit. It is for holders that can hang: while a process lives, its session renews what
// it holds, also for a goroutine that waits forever.
//
//	for _, batch := range batches {
//		if err := mu.Progress(time.Minute); err != nil {
//			return err // the hold is over
//		}
//		send(ctx, batch) // one takes some seconds
//	}
//
// When the limit has passed, the hold ends like one that is lost, and the cause is [ErrStalled]: Lost
// closes, and after the session's grace the key is released, even if Unlock is never called. Then other
// processes can lock it. In this process m stays locked until Unlock, as after any loss, and
// [Session.Healthy] reports the hold. Everything else that the session holds is kept.
//
// limit counts from the call, by the local clock, including time that the machine sleeps. As with
// net.Conn's SetDeadline, each call replaces the limit of the last one, and 0 removes it. A hold begins
// without a limit, also one that is handed off. So call Progress first when m is locked.
//
// Progress sends no command, so it can be called often, by any goroutine. The error is [ErrLost], with
// its cause, if the hold is over or m is not locked: a call that comes too late changes nothing. It is
// another error if limit is negative or more than [MaxDuration].
func (m *Mutex) Progress(limit time.Duration) error {
	if h := m.hold(); h != nil {
		return h.Progress(limit)
	}
	return fmt.Errorf("dsync: progress of %q: it is not locked: %w", m.key, ErrLost)
}

// Progress is [Mutex.Progress] for the hold of the writer. Readers have no limit, because they can share a
// hold: one that makes progress would hide another that hangs.
func (rw *RWMutex) Progress(limit time.Duration) error { return rw.writer().Progress(limit) }

// Progress is [Mutex.Progress] for the hold whose context is ctx, or is a parent of ctx: that of a
// Mutex or of the writer of an [RWMutex] (by Do or Context), of a run of a [Once] or a [Periodic], or of a
// leader's term (by Campaign, Run or a Group of package leader). If there are several, it is the innermost
// one. If there is none, or the innermost is that of readers, a [Semaphore] or a [Mutexes], which have no limit,
// Progress returns an error.
func Progress(ctx context.Context, limit time.Duration) error {
	if h := engine.HoldOf(ctx); h != nil {
		return h.Progress(limit)
	}
	return errors.New("dsync: progress: the context is not that of a hold with a limit; pass one of Mutex.Do, Mutex.Context, Once.Do, Periodic.Do or package leader")
}
