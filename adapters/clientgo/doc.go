// Package clientgo keeps the leader elections of k8s.io/client-go in MongoDB: a [Lock] is a
// resourcelock.Interface. It is for controllers that already use client-go's
// leaderelection package, or controller-runtime, and should elect their leader without the
// API server, for example because their replicas run in several clusters.
//
//	lock, err := clientgo.New(client.Database("app"), "controller", nil)
//	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
//		Lock:            lock,
//		LeaseDuration:   20 * time.Second,
//		RenewDeadline:   10 * time.Second,
//		RetryPeriod:     2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks:       callbacks,
//	})
//	elector.Run(ctx)
//
// With controller-runtime, set LeaderElectionResourceLockInterface of manager.Options to the
// lock. All processes must use the same database, collection and name. Coordinated leader
// election (LeaderElectionConfig.Coordinated) needs the API server and is not supported.
//
// New code should use leader.Election of this project instead, which is not limited as
// described below.
//
// # Guarantees and limits
//
// The algorithm is client-go's; this package stores the record. A write succeeds only if the
// record is still the one that the lock has read, and is acknowledged by a majority. So of
// several candidates that try at the same time, one wins.
//
// Everything else depends on time, as with Leases of Kubernetes:
//
//   - Each process measures with its own clock for how long the record has not changed. Clocks
//     may differ, but must run at about the same rate. A process that was frozen, or whose host
//     was suspended, can still act as the leader when it continues.
//   - A leader that cannot renew finds out late: see Durations.
//   - There is no fencing token. A late write of a former leader cannot be recognized.
//   - When leadership is lost, the context of OnStartedLeading ends, but nothing waits until
//     that function returns. Most programs exit in OnStoppedLeading for this reason.
//
// leader.Election has a fencing token for each term and leases that expire by the store's
// clock, and ends its context a grace before another process can lead.
//
// # Durations
//
// A leader that cannot renew gives up RenewDeadline plus RetryPeriod after the reply to its last
// renewal, and that reply can take the lock's Timeout. So that no other process leads before
// then,
//
//	LeaseDuration > RenewDeadline + RetryPeriod + Timeout
//
// must hold, and with ReleaseOnCancel 3·Timeout instead of Timeout; see below. client-go checks
// only that LeaseDuration is greater than RenewDeadline. The durations above, with the default
// Timeout of 2 s, leave 2 s. The usual LeaseDuration of 15 s suits a Timeout of 900 ms.
//
// Timeout should also be less than half of RenewDeadline, so that one command without an
// answer does not cost the leadership. Use whole seconds for LeaseDuration: client-go stores
// seconds, rounded down, and candidates go by the stored value.
//
// # ReleaseOnCancel
//
// Set ReleaseOnCancel. Another process then leads within about two RetryPeriods after an orderly
// stop; otherwise, only after LeaseDuration. The elector releases as soon as the context of Run
// ends, so end the leader's work first, then cancel that context. A renewal that is under way at
// that moment is cut off. If the server has stored it all the same, the release fails, and another
// process leads only when the lease has run out.
//
// Releasing has a price. A leader that cannot renew, and gives up, also tries to release, with a
// Get and an Update, and only then does the context of OnStartedLeading end. If the Update succeeds
// and its reply is late, another process can lead for up to a Timeout while the work still runs. If
// that must not happen, do without ReleaseOnCancel, or use leader.Election.
//
// # The collection
//
// There is one document for each election:
//
//	{_id: <name>, version, holder, leaseDurationSeconds, acquireTime, renewTime, transitions,
//	 strategy, preferredHolder}
//
// version is an ObjectID that is new in each write. The collection is created by the first
// write. It must not be the one of dsync/mongo. The rights to find, insert and update are enough,
// and no index beyond _id is needed. Nothing is ever deleted. Do not delete a document while
// processes use it: another process than the leader may create it again, and lead at once.
package clientgo
