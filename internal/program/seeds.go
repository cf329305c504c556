package program

import "time"

// A Seed is a program with a name.
type Seed struct {
	Name  string
	Bytes []byte
}

// op is short for an Op without a delay.
func op(session, goroutine int, v Verb, key, variant, arg int) Op {
	return Op{Session: session, Goroutine: goroutine, Verb: v, Key: key, Variant: variant, Arg: arg}
}

// after returns o with a delay before it.
func after(d time.Duration, o Op) Op {
	o.Delay = d
	return o
}

// Settings of the seeds: see [Setting].
const (
	plain    = 0x00
	lingers  = 0x03
	granted  = 0x14 // HandOffTime is negative: no hand-offs
	listens  = 0x40
	polls    = 0x80
	lingersP = lingers | polls
)

// Seeds returns programs that together use every verb, each verb in the situations that matter for it.
func Seeds() []Seed {
	const long = 15 // the Arg with the longest patience
	all := []Seed{
		{"nothing", nil},
		{"one lock", Encode(true, []byte{plain, plain}, op(0, 0, Lock, 0, 0, long), op(0, 0, Unlock, 0, 0, 0))},
		{"one lock as in package sync", Encode(true, []byte{plain, plain}, op(0, 0, Lock, 0, 2, long), op(0, 0, Unlock, 0, 0, 0), op(1, 0, TryLock, 0, 2, 0))},
		{"lock from two sessions", Encode(true, []byte{plain, plain},
			op(0, 0, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long),
			after(time.Second, op(0, 0, Unlock, 0, 1, 0)), op(1, 0, TryLock, 0, 0, 0), op(1, 0, Unlock, 0, 2, 0))},
		{"hand-off while another waits", Encode(true, []byte{plain, granted},
			op(0, 0, Lock, 0, 0, long), op(0, 1, Lock, 0, 0, long), op(0, 2, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long),
			after(20*time.Millisecond, op(0, 0, Unlock, 0, 0, 0)), op(0, 1, Unlock, 0, 0, 0), op(0, 2, Unlock, 0, 0, 0))},
		{"linger and yield", Encode(true, []byte{lingers, lingersP, listens},
			op(0, 0, Lock, 0, 0, long), op(0, 0, Unlock, 0, 0, 0), op(0, 0, Lock, 0, 0, long), op(0, 0, Unlock, 0, 0, 0),
			after(time.Second, op(1, 0, Lock, 0, 0, long)), after(time.Second, op(1, 0, Unlock, 0, 0, 0)),
			after(2*time.Second, op(2, 0, TryLock, 0, 0, 0)), after(4*time.Second, op(2, 0, Lock, 0, 0, long)))},
		{"linger is cut short", Encode(true, []byte{lingers | listens, plain},
			op(0, 0, Lock, 1, 0, long), op(0, 0, Unlock, 1, 0, 0),
			after(2*time.Second, op(0, 0, Lock, 0, 0, long)), op(0, 0, Unlock, 0, 0, 0),
			after(4*time.Second, op(1, 0, Lock, 0, 0, long)))},
		{"linger and loss", Encode(false, []byte{lingers | listens, plain},
			op(0, 0, Lock, 0, 0, long), after(8*time.Second, op(0, 0, Unlock, 0, 0, 0)), op(0, 0, Cut, 0, 0, 0),
			after(8*time.Second, op(0, 0, Lock, 0, 0, long)), after(25*time.Second, op(0, 0, Heal, 0, 0, 0)),
			op(1, 0, Lock, 0, 0, long), after(25*time.Second, op(1, 0, Unlock, 0, 0, 0)))},
		{"unlock after a while", Encode(true, []byte{plain, polls},
			op(0, 0, Lock, 0, 0, long), op(0, 0, ReleaseAfter, 0, 0, 9),
			after(time.Millisecond, op(1, 0, TryLock, 0, 0, 0)), op(1, 0, Lock, 0, 0, long))},
		{"force", Encode(true, []byte{listens, plain, lingers},
			op(0, 0, Lock, 0, 0, long), after(4*time.Second, op(0, 0, Unlock, 0, 0, 0)),
			op(2, 0, Lock, 0, 0, long), op(2, 0, Unlock, 0, 0, 0),
			after(time.Second, op(1, 0, ForceHold, 0, 0, long)), op(1, 1, ForceHold, 0, 1, 5))},
		{"kept while a revocation is pending", Encode(true, []byte{listens, polls},
			op(1, 0, Lock, 0, 0, long), after(7*time.Millisecond, op(0, 0, ForceHold, 0, 1, 3)),
			after(1200*time.Millisecond, op(1, 0, ReleaseAfter, 0, 0, 9)), op(1, 1, Lock, 0, 0, long))},
		{"readers and writers", Encode(true, []byte{plain, polls, granted},
			op(0, 0, ReadLock, 0, 0, long), op(0, 1, TryReadLock, 0, 0, 0), op(0, 1, TryReadLock, 0, 0, 0), op(1, 0, ReadLock, 0, 1, long),
			after(time.Second, op(2, 0, WriteLock, 0, 0, long)), after(2*time.Second, op(0, 2, TryReadLock, 0, 0, 0)),
			op(0, 2, ReadLock, 0, 0, long), op(0, 2, ReadUnlock, 0, 0, 0),
			after(4*time.Second, op(0, 0, ReadUnlock, 0, 0, 0)), op(0, 1, ReadUnlock, 0, 0, 0), op(0, 1, ReadUnlock, 0, 0, 0),
			after(4*time.Second, op(1, 0, ReadUnlock, 0, 0, 0)), op(1, 0, TryWriteLock, 0, 0, 0),
			op(2, 0, WriteUnlock, 0, 0, 0), op(2, 0, WriteLock, 0, 2, long))},
		{"semaphore", Encode(true, []byte{plain, plain, polls},
			op(0, 0, Acquire, 0, 1, long), op(0, 1, Acquire, 0, 0, 14), op(1, 0, Acquire, 0, 2, 14), op(1, 1, TryAcquire, 0, 0, 1),
			after(time.Second, op(0, 0, Release, 0, 0, 0)), op(0, 0, Release, 0, 0, 0),
			after(time.Second, op(0, 1, Release, 0, 0, 0)), after(time.Second, op(1, 0, Release, 0, 2, 0)))},
		{"resize", Encode(true, []byte{plain, plain, plain},
			op(0, 0, Acquire, 0, 2, long), op(1, 0, Acquire, 0, 1, 14),
			after(time.Second, op(2, 0, Resize, 0, 0, 4)), op(2, 0, Acquire, 0, 2, 14),
			after(time.Second, op(2, 1, Resize, 0, 0, 1)), op(0, 0, Release, 0, 2, 0), op(2, 1, Resize, 0, 0, 3))},
		{"once", Encode(true, []byte{plain, plain, polls},
			op(0, 0, Once, 0, 1, 9), op(0, 1, Once, 0, 2, 9), op(1, 0, Once, 0, 0, 9), op(2, 0, Once, 0, 3, 9),
			after(8*time.Second, op(0, 0, Once, 0, 0, 9)), op(1, 1, Status, 0, 0, 3))},
		{"lease", Encode(true, []byte{plain, polls},
			op(0, 0, Lease, 0, 0, 9), op(1, 0, Lease, 0, 0, long), op(1, 1, TryLease, 0, 0, 3),
			after(2*time.Second, op(0, 0, Extend, 0, 0, 0)), after(25*time.Second, op(0, 0, EndLease, 0, 0, 0)),
			op(1, 0, EndLease, 0, 0, 0))},
		{"break", Encode(true, []byte{listens, plain, polls},
			op(0, 0, Lock, 0, 0, long), op(0, 0, ReadLock, 0, 0, long), op(0, 0, Lease, 1, 0, long),
			after(time.Second, op(1, 0, Break, 0, 0, 10)), op(1, 1, Break, 0, 1, 11), op(2, 0, Break, 1, 0, 10), op(2, 1, List, 0, 0, 0),
			after(25*time.Second, op(0, 0, Unlock, 0, 0, 0)))},
		{"election", Encode(true, []byte{plain, plain, listens, polls},
			op(0, 0, Campaign, 0, 0, long), op(0, 1, TryCampaign, 0, 0, 0), op(1, 0, Campaign, 0, 0, long), op(2, 0, Campaign, 0, 1, long), op(3, 0, Campaign, 0, 0, long),
			after(2*time.Second, op(0, 0, Transfer, 0, 0, 1)), op(0, 0, Campaign, 0, 0, long), op(0, 0, Transfer, 0, 3, 0),
			after(4*time.Second, op(2, 0, Transfer, 0, 0, 1)), op(1, 0, Transfer, 0, 2, 0),
			after(8*time.Second, op(3, 0, Resign, 0, 0, 0)), after(13*time.Second, op(1, 1, Break, 0, 0, 14)))},
		{"transfer to a candidate that gives up or is cut off", Encode(false, []byte{plain, plain, plain},
			op(0, 0, Campaign, 0, 0, long), op(1, 0, Campaign, 0, 0, 5), op(2, 0, Campaign, 0, 0, long),
			after(2*time.Second, op(2, 1, Cut, 0, 0, 0)), after(2*time.Second, op(0, 0, Transfer, 0, 0, 1)),
			after(25*time.Second, op(2, 1, Heal, 0, 0, 0)))},
		{"close and open", Encode(false, []byte{lingers, plain},
			op(0, 0, Lock, 0, 0, long), op(0, 1, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long),
			after(time.Second, op(0, 2, Close, 0, 0, 4)), op(0, 2, TryLock, 0, 0, 0), op(0, 2, Open, 0, 0, 0), op(0, 2, Lock, 0, 0, long),
			after(2*time.Second, op(0, 0, Unlock, 0, 0, 0)))},
		{"cut off", Encode(false, []byte{plain, lingers, polls},
			op(0, 0, Lock, 0, 0, long), op(0, 1, ReadLock, 0, 0, long), op(0, 2, Acquire, 0, 1, 14),
			after(time.Second, op(1, 0, Lock, 0, 0, long)), after(time.Second, op(1, 1, WriteLock, 0, 0, long)),
			after(2*time.Second, op(0, 1, Cut, 0, 0, 0)), after(25*time.Second, op(0, 1, Heal, 0, 0, 0)),
			after(25*time.Second, op(0, 0, TryLock, 0, 0, 0)), op(0, 0, Unlock, 0, 0, 0))},
		{"noise", Encode(false, []byte{plain, lingers, polls},
			op(0, 0, Noise, 0, 0, 0), op(1, 0, Noise, 0, 0, 0), op(0, 0, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long), op(2, 0, Lock, 0, 0, long),
			op(0, 1, Acquire, 0, 1, long), op(1, 1, Once, 0, 0, long), op(1, 2, WriteLock, 0, 0, long), op(2, 1, ReadLock, 0, 0, long),
			after(2*time.Second, op(0, 0, Unlock, 0, 0, 0)), after(4*time.Second, op(1, 0, Unlock, 0, 0, 0)), op(2, 0, Unlock, 0, 0, 0),
			op(0, 0, Lock, 0, 0, long), op(2, 2, Break, 0, 0, 10), op(1, 0, Heal, 0, 0, 0), op(0, 0, Unlock, 0, 0, 0))},
		{"everything twice", Encode(false, []byte{plain, plain},
			op(0, 0, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long), op(0, 1, Lease, 1, 0, 8),
			after(time.Second, op(0, 0, Unlock, 0, 0, 0)), op(0, 0, Replay, 0, 0, 0), op(1, 1, Replay, 0, 0, 0),
			after(25*time.Second, op(1, 1, Replay, 0, 0, 0)), op(0, 1, Sleep, 0, 0, 13))},
		{"copies of requests for released claims", Encode(false, []byte{plain, polls},
			op(0, 0, Lock, 0, 0, long), op(0, 0, Unlock, 0, 0, 0), op(0, 0, ReadLock, 0, 0, long), op(0, 0, ReadUnlock, 0, 0, 0),
			op(0, 0, Lease, 1, 0, 8), op(0, 0, EndLease, 1, 0, 0), op(0, 0, Replay, 0, 0, 0), op(1, 0, Lock, 0, 0, long))},
		{"the clock within the margin", Encode(false, []byte{plain, plain},
			op(0, 0, Lock, 0, 0, long), op(1, 0, Lock, 0, 0, long), op(0, 1, Step, 0, 0, 15), op(0, 1, Lease, 1, 0, 9),
			after(4*time.Second, op(0, 1, Step, 0, 0, 0)), after(time.Second, op(0, 0, ReleaseAfter, 0, 0, 3)),
			after(time.Second, op(0, 1, Step, 0, 0, 15)), op(0, 1, Cut, 0, 0, 0), after(time.Second, op(0, 1, Step, 0, 0, 0)))},
		{"a thousand readers", Encode(true, []byte{listens, plain},
			op(0, 0, Readers, 0, 0, long), after(time.Second, op(1, 0, WriteLock, 0, 0, long)), op(0, 0, ReadUnlock, 0, 0, 0), op(0, 1, Readers, 0, 0, long))},
		{"one key as every kind", Encode(true, []byte{plain, plain, plain, plain},
			op(0, 0, Lock, 2, 0, long), op(1, 0, ReadLock, 2, 0, long), op(2, 0, Acquire, 2, 0, 14), op(0, 1, WriteLock, 2, 0, long),
			after(time.Second, op(0, 0, Unlock, 2, 0, 0)), after(time.Second, op(3, 0, Once, 2, 0, 0)), op(0, 1, TryLock, 2, 0, 0))},
	}
	return all
}
