package program

import (
	"fmt"
	"time"
)

// An Op is one step of a goroutine.
type Op struct {
	Session, Goroutine int           // the session and the goroutine in it that does the Op
	Delay              time.Duration // time to sleep before the Op
	Verb               Verb
	Key                int // 0 or 1; 2: the key that is used as every kind
	Variant            int // 0 to 3: selects the form of the call
	Arg                int // 0 to 15: an amount or duration
}

// A Verb is what an Op does.
type Verb uint8

// The verbs. A verb that releases a hold does nothing if the goroutine has no such hold.
const (
	Lock Verb = iota
	TryLock
	Unlock
	ReleaseAfter
	ForceHold
	WriteLock
	TryWriteLock
	WriteUnlock
	ReadLock
	TryReadLock
	ReadUnlock
	Readers
	Acquire
	TryAcquire
	Release
	Resize
	Once
	Lease
	TryLease
	Extend
	EndLease
	Campaign
	TryCampaign
	Resign
	Transfer
	Break
	Status
	List
	Sleep

	// Calm programs use none of the following verbs.
	Close
	Open
	Cut
	Heal
	Replay
	Noise
	Step
	FailOver

	verbs
)

var verbNames = [verbs]string{
	"Lock", "TryLock", "Unlock", "ReleaseAfter", "ForceHold",
	"WriteLock", "TryWriteLock", "WriteUnlock",
	"ReadLock", "TryReadLock", "ReadUnlock", "Readers",
	"Acquire", "TryAcquire", "Release", "Resize", "Once",
	"Lease", "TryLease", "Extend", "EndLease",
	"Campaign", "TryCampaign", "Resign", "Transfer",
	"Break", "Status", "List", "Sleep", "Close", "Open", "Cut", "Heal", "Replay", "Noise", "Step", "FailOver",
}

func (v Verb) String() string { return verbNames[v] }

// key returns the name of the op's key.
func (o Op) key() string {
	family := ""
	switch o.Verb {
	case Lock, TryLock, Unlock, ReleaseAfter, ForceHold, Lease, TryLease, Extend, EndLease:
		family = "mutex"
	case WriteLock, TryWriteLock, WriteUnlock, ReadLock, TryReadLock, ReadUnlock, Readers:
		family = "rw"
	case Acquire, TryAcquire, Release, Resize:
		family = "sem"
	case Once:
		family = "once"
	case Campaign, TryCampaign, Resign, Transfer:
		family = "election"
	case Break, Status:
		family = families[o.Arg%len(families)]
	}
	return keyName(family, o.Key)
}

var families = []string{"mutex", "rw", "sem", "once", "election"}

// mixed is the name of the key used as every kind.
const mixed = "mixed"

func keyName(family string, n int) string {
	if n == 2 {
		return mixed
	}
	return fmt.Sprint(family, n)
}

// keys returns all keys that programs use.
func keys() []string {
	all := []string{mixed}
	for _, f := range families {
		all = append(all, keyName(f, 0), keyName(f, 1))
	}
	return all
}

func (o Op) String() string {
	s := o.Verb.String()
	if k := o.key(); o.Verb < List {
		s += " " + k
	}
	switch {
	case o.Verb.waits():
		s += fmt.Sprintf(" for up to %v", bubble.patience(o))
	case o.Verb == ReleaseAfter:
		s += fmt.Sprintf(" %v", bubble.keep(o))
	case o.Verb == Resize:
		s += fmt.Sprintf(" to %d", o.size())
	case o.Verb == Sleep:
		s += fmt.Sprintf(" %v", bubble.sleepTime(o))
	case o.Verb == Step:
		s += fmt.Sprintf(" the store's clock to %v", bubble.clock(o))
	}
	switch o.Verb {
	case Acquire, TryAcquire, Release:
		s += fmt.Sprintf(" n=%d", o.n())
	case Once:
		s += fmt.Sprintf(", run %v, then %s", bubble.sleepTime(o), onceEnds[o.Variant])
	case Lease, TryLease:
		s += fmt.Sprintf(", lease %v", bubble.lease(o))
	}
	return s + fmt.Sprintf(" (variant %d)", o.Variant)
}

// waits reports whether the verb's call waits, bounded by a context.
func (v Verb) waits() bool {
	switch v {
	case Lock, ForceHold, WriteLock, ReadLock, Readers, Acquire, Once, Lease, Campaign, Break:
		return true
	}
	return false
}

func (o Op) n() int64    { return 1 + int64(o.Variant) }
func (o Op) size() int64 { return 1 + int64(o.Arg%5) }

var onceEnds = [4]string{"succeed", "fail", "panic", "succeed"}
