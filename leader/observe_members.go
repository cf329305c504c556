package leader

import (
	"context"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// ObserveMembers returns a channel that receives the members of the election, in the order of
// [Election.Members]: the present ones first, and then all of them each time somebody joins,
// leaves, dies, or takes another role or place in the queue. A new heartbeat alone is no change, so
// LastSeen is as old as the last change. Each slice is the receiver's own.
//
// Like that of [Election.Observe], the channel has room for one value, and a newer value replaces
// one that was not received in time. It is closed when ctx or the session ends. Until then this
// process is a member itself. The hooks Joined and Left report the same changes one by one.
//
// A change of the leader or the queue is noticed when it happens. A death, and a change among
// processes that only observe, is noticed when the election is next read, within
// dsync.Options.PollInterval. Each reading costs as much as Members.
func (e *Election) ObserveMembers(ctx context.Context) <-chan []Member {
	e.observeForHooks()
	ch := make(chan []Member, 1)
	first, last := true, []Member(nil)
	e.s.Observe(ctx, e.name, func(st driver.State, err error) {
		if err != nil {
			return // observing goes on, and StoreError reported it
		}
		now, err := e.members(ctx, st)
		if err != nil || !first && slices.EqualFunc(now, last, sameMember) {
			return
		}
		first, last = false, now
		replace(ch, slices.Clone(now))
	}, func() { close(ch) })
	return ch
}

// sameMember reports whether a and b are the same session in the same role. All else that others
// see of a session, except its heartbeats, never changes.
func sameMember(a, b Member) bool { return a.Session == b.Session && a.Role == b.Role }
