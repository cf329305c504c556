package dsynctest

// A Method is the name of a method of [dsync.Store], for [Counts] and
// [Request].
type Method string

// The methods of [dsync.Store].
const (
	MethodRegister   Method = "Register"
	MethodHeartbeat  Method = "Heartbeat"
	MethodBury       Method = "Bury"
	MethodUnregister Method = "Unregister"
	MethodRevoke     Method = "Revoke"
	MethodObserve    Method = "Observe"
	MethodAcquire    Method = "Acquire"
	MethodRelease    Method = "Release"
	MethodExtend     Method = "Extend"
	MethodPublish    Method = "Publish"
	MethodResize     Method = "Resize"
	MethodWatch      Method = "Watch"
	MethodListen     Method = "Listen"
	MethodNotify     Method = "Notify"
	MethodLoad       Method = "Load"
	MethodKeys       Method = "Keys"
	MethodMembers    Method = "Members"
	MethodLives      Method = "Lives"
	MethodObservers  Method = "Observers"
	MethodLine       Method = "Line"
	MethodSweep      Method = "Sweep"
)

// MethodEvent is not a method of the store but the delivery of one event by a
// Watch, or of one call by a Listen. [Faulty] asks about it like about a request.
const MethodEvent Method = "Event"
