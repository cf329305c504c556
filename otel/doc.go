// Package otel records what sessions of package dsync and elections of package leader report to their hooks, as
// OpenTelemetry metrics and spans. Files that also use go.opentelemetry.io/otel import it as dsyncotel.
//
//	telemetry, err := dsyncotel.New(nil)
//	locks, err := dsyncmongo.Open(ctx, db, &dsyncmongo.Options{
//		Session: dsync.Options{Hooks: telemetry.Hooks()},
//	})
//	election, err := leader.New(locks, "reports", &leader.Options{Hooks: telemetry.LeaderHooks(nil)})
//
// # Metrics
//
// All times are in seconds. The count of a histogram is the number of measurements.
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
// The attributes are leasehold.kind (mutex, rwmutex, semaphore, once, periodic, election), leasehold.grant.source
// (local: handed off within the process; store: granted by the store), leasehold.key, leasehold.store.operation,
// leasehold.clock.direction (ahead, back) and error.type. For holds, sessions and terms error.type is the reason
// for their end:
//
//   - expired: no heartbeat reached the store in time;
//   - session_expired: another process found that the session had expired;
//   - revoked: somebody used Break or ForceHold;
//   - stalled: the holder made no progress within its limit;
//   - record_deleted: somebody deleted or changed the key's record in the store;
//   - closed: the session was closed before the holder was done.
//
// The attribute is missing if the holder released the hold, if the hold was a lease that is over, if the leader
// resigned, or if the context of its campaign ended. For heartbeats and commands, error.type is timeout or the type of
// the error.
//
// Only leasehold.queue.length has leasehold.key by default, because there can be many keys and each value makes
// its own time series. [Options].Key adds it to the other metrics, unchanged or shortened.
//
// leasehold.lease.remaining is read when the metrics are collected, so it also falls while a heartbeat hangs. It exists
// from the first heartbeat on. At 0 all holds except leases are lost.
//
// leasehold.queue.length is recorded with [Telemetry.ObserveQueues], leasehold.listener.ready and leasehold.store.size
// with [Telemetry.ObserveSession], and leasehold.clock.spread with [Telemetry.RecordClockSpread]. If
// leasehold.listener.ready is 0 because of an error, waiters poll. Its error.type is then unsupported if the store
// can't notify, otherwise the type of the error that ended the listener.
//
// The file grafana/leasehold.json is a Grafana dashboard of these metrics, with the names that they have in
// Prometheus. The file prometheus/alerts.yml has alert rules for Prometheus.
//
// # Spans
//
// With [Options].TracerProvider each hold is a span "lock mutex" (or another kind) that begins with the call and
// ends with the hold. A child span "acquire mutex" covers the wait. The parent of a hold's span is the span in
// the context passed to LockContext, Do, Acquire or Campaign. The span of a plain Lock, which has no context, is
// the root of a trace of its own. A hold's span has the attributes above, always with the key, and
// leasehold.fencing_token. A loss sets the span's status. A term of an election is a span "lead" with the
// attribute leasehold.leader.term.number; its parent is the span in the context of the campaign. The hooks are
// called a moment after the event, so a span can end after its parent.
//
// # Cost
//
// Hooks are called on a goroutine of their own, so no lock waits for them. But no report of a hold is dropped, so
// reports pile up if the process hands off holds faster than the hooks can record them. BenchmarkHold measures how fast
// holds are recorded: some hundred thousand a second.
package otel
