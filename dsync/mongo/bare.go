package mongo

import "context"

// bare is a context without values: a session of the driver that stands in the
// caller's context would pull a lock's command into the caller's transaction
// (mongo-driver v2.9.3, Database.RunCommand: sessionFromContext), to be undone
// with it. Cancellation and deadline are the wrapped context's.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }

// AfterFunc lets contexts that the driver derives from this one follow it
// without a goroutine each: package context can't see through a foreign type.
func (b bare) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(b.Context, f)
}
