// Package otel records the hooks of a session of package dsync, and of elections of package
// leader, as OpenTelemetry metrics and spans. Files that also use go.opentelemetry.io/otel
// import it as dsyncotel.
//
//	telemetry, err := dsyncotel.New(nil)
//	locks, err := dsyncmongo.Open(ctx, db, &dsyncmongo.Options{
//		Session: dsync.Options{Hooks: telemetry.Hooks()},
//	})
//	election, err := leader.New(locks, "reports", &leader.Options{Hooks: telemetry.LeaderHooks(nil)})
//
// # Metrics
//
// All times are in seconds. A histogram's count is the number of what it measures.
//
//	leasehold.acquire.duration      histogram        from the call to the grant               kind, source, key
//	leasehold.grants                counter          holds that began, local hand-offs too    kind, source, key
//	leasehold.hold.active           up-down counter  holds of this process, now               kind, key
//	leasehold.hold.duration         histogram        from the grant to the end                kind, key, error.type
//	leasehold.hold.losses           counter          holds that were lost                     kind, key, error.type
//	leasehold.heartbeat.duration    histogram        heartbeats, also failed ones             error.type
//	leasehold.lease.remaining       gauge            the time left of the lease, now
//	leasehold.session.starts        counter          identities in the store
//	leasehold.session.losses        counter          identities that were lost                error.type
//	leasehold.store.errors          counter          commands that failed                     operation, error.type
//	leasehold.clock.jumps           counter          jumps of the store's clock               direction
//	leasehold.deadlocks             counter          possible deadlocks with this process
//	leasehold.clock.spread          gauge            between the clocks of two servers
//	leasehold.queue.length          gauge            waiters, in all processes                key
//	leasehold.listener.ready        gauge            1 if the session gets notices, else 0    error.type
//	leasehold.store.size            gauge            records that sweeping has left
//	leasehold.leader.leading        up-down counter  elections this process leads, now        key
//	leasehold.leader.terms          counter          terms of this process                    key
//	leasehold.leader.term.duration  histogram        from the election to the end             key, error.type
//
// The attributes are leasehold.kind (mutex, rwmutex, semaphore, once, periodic, election),
// leasehold.grant.source (local: handed off within the process; store: granted by the
// store), leasehold.key, leasehold.store.operation, leasehold.clock.direction (ahead,
// back) and error.type. For holds, sessions and terms error.type is the reason for their end:
// expired (no heartbeat got through in time, or a fixed lease was over), session_expired
// (another process found that the session had expired), revoked (somebody used Break or
// ForceHold), stalled (the holder made no progress within its limit), record_deleted (somebody deleted the
// key's record in the store) or closed (the session was closed before the holder was done). It is missing if the
// holder ended the hold: by a release, or a leader by resigning or by the end of its context.
// For heartbeats and commands it is timeout or the type of the error.
//
// leasehold.key is left out except for leasehold.queue.length: there can be many keys, and each
// value makes its own time series. [Options].Key adds it, as it is or shortened.
//
// leasehold.lease.remaining is read when the metrics are collected, so it also falls while a
// heartbeat hangs. It exists from the first heartbeat on. At 0 every hold is lost.
//
// leasehold.queue.length is recorded with [Telemetry.ObserveQueues], leasehold.listener.ready and
// leasehold.store.size with [Telemetry.ObserveSession], and leasehold.clock.spread with
// [Telemetry.RecordClockSpread]. At 0, leasehold.listener.ready has an error.type if waiters poll because of
// it: unsupported if the store can't notify, or the type of the error that ended the listener.
//
// The file grafana/leasehold.json is a Grafana dashboard of just these metrics, under
// the names that Prometheus gives them. The file prometheus/alerts.yml has alert rules
// for Prometheus.
//
// # Spans
//
// With [Options].TracerProvider each hold is a span "lock mutex", or of another kind, from
// the call to the end of the hold, and within it "acquire mutex", the wait. Its parent is
// the caller's span: the one in the context that was given to LockContext, Do, Acquire or
// Campaign. The span of a plain Lock, which has no context, is the root of a trace of its
// own. The attributes are those above, always with the key, and leasehold.fencing_token. A
// loss sets the span's status. A term of an election is a span "lead", also a child of
// Campaign's caller, with leasehold.leader.term.number. Spans begin and end when the hooks are
// called, a moment after the event, and can end after their parent.
//
// # Cost
//
// Hooks are called on a goroutine of their own: no lock waits for them. But no report of a hold
// is dropped, so reports queue up if holds are handed off within the process faster than they
// are recorded for a long time. BenchmarkHold measures that rate: some hundred thousand holds
// a second.
package otel
