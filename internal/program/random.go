package program

import (
	"math/rand/v2"
	"slices"
)

// Random returns the bytes of a random program. Most of the programs are small and use few keys and verbs,
// so that their operations interact more often.
func Random(r *rand.Rand) []byte {
	b := []byte{byte(r.Uint32())}
	for range 2 + int(b[0]&3)%3 {
		b = append(b, byte(r.Uint32()))
	}
	n := 1 + r.IntN(MaxOps)
	verbs := themes[r.IntN(len(themes))]
	keys := byte(r.Uint32()) & 3 << 4 // the key of two thirds of the ops
	busy := r.IntN(2) == 0            // little sleep
	for range n {
		verb := byte(r.IntN(256))
		if len(verbs) > 0 && r.IntN(8) > 0 {
			verb = byte(verbs[r.IntN(len(verbs))])
		}
		who, how := byte(r.Uint32()), byte(r.Uint32())
		if r.IntN(3) > 0 {
			who = who&^(3<<4) | keys
		}
		if busy && r.IntN(2) == 0 {
			how &= 0x7f
		}
		b = append(b, verb, who, how)
	}
	return b
}

// themes are groups of verbs that interact with each other; an empty theme means all verbs.
var themes = [][]Verb{
	nil,
	{Lock, Lock, TryLock, Unlock, Unlock, ReleaseAfter, ForceHold, Sleep},
	{WriteLock, TryWriteLock, WriteUnlock, ReadLock, ReadLock, TryReadLock, ReadUnlock, ReadUnlock, TryReadLock},
	{WriteLock, TryWriteLock, WriteUnlock, ReadLock, ReadUnlock, Readers, Readers},
	{Acquire, Acquire, TryAcquire, Release, Release, Resize, Sleep},
	{Once, Once, Once, Break, Cut, Heal, Sleep},
	{Lease, TryLease, Extend, EndLease, Lock, Unlock, Break},
	{Campaign, Campaign, Campaign, TryCampaign, Resign, Transfer, Transfer, Break, Sleep},
	{Campaign, Campaign, Resign, Transfer, Transfer, Cut, Heal, Close, Open, Noise, Replay},
	{Lock, Unlock, Lease, EndLease, Cut, Heal, Close, Open, Break, Replay},
	{Lock, Unlock, ReadLock, ReadUnlock, WriteLock, WriteUnlock, Cut, Heal, Replay, Sleep},
	{Lock, Unlock, TryLock, Acquire, Release, Lease, Extend, Once, Noise, Noise, Heal, Sleep},
	{Lock, Unlock, TryLock, ReleaseAfter, Lease, EndLease, Step, Step, Replay, Noise, Heal, Cut},
	{Lock, Lock, TryLock, Unlock, FailOver, FailOver, Heal, Sleep},
	{WriteLock, TryReadLock, ReadUnlock, TryAcquire, Release, Lock, Unlock, FailOver, FailOver, Heal, Replay},
}

// Noisy returns the bytes of a random program in which every link is noisy from the start.
func Noisy(r *rand.Rand) []byte {
	b := Random(r)
	b[0] &^= 4 // not calm
	sessions := 2 + int(b[0]&3)%3
	var noise []byte
	for i := range sessions {
		noise = append(noise, byte(Noise), byte(i), 0)
	}
	return slices.Insert(b, 1+sessions, noise...)
}
