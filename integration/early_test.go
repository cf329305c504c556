package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// If a fail-over undoes an Unlock, the key stays held until the next heartbeat, which discards
// the claim. Then another process gets the key, with a greater token. Hold.Release does not
// succeed until a majority has the release.
func TestUndoneUnlock(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		opt := r.short(time.Minute)
		opt.HeartbeatInterval = 5 * time.Second
		var lost losses
		opt.Hooks = lost.hooks()
		s := r.session(opt)
		m := s.Mutex("key")
		m.Lock()
		sure := lock(t, s.Mutex("sure"))
		first := m.Token()

		old := primary(t, own.Set())
		var others []*mongod.Member
		for _, member := range own.Set().Members() {
			if member == old {
				continue
			}
			if err := member.Freeze(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { member.Thaw() })
			others = append(others, member)
		}
		m.Unlock() // returns as soon as the primary has the release
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		err := sure.Release(ctx)
		cancel()
		if err == nil {
			t.Error("Release succeeded before a majority had the release")
		}
		old.Kill()
		t.Cleanup(func() { old.Start() })
		for _, member := range others {
			member.Thaw()
		}
		var next *mongod.Member
		eventually(t, "there is another primary", func() bool {
			next = primary(t, own.Set())
			return next != old
		})
		b := lock(t, r.session(opt).Mutex("key"))
		if b.Token() <= first {
			t.Errorf("token %d came after %d, want a greater one", b.Token(), first)
		}
		lost.none(t)
		release(t, b)
	})
}
