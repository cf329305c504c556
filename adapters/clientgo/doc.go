// Package clientgo keeps the leader elections of k8s.io/client-go in MongoDB: a [Lock] is a
// resourcelock.Interface. It is for controllers that already use controller-runtime or
// client-go's leaderelection package, but should elect their leader without the API server.
// For example, their replicas may run in several clusters.
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
// New code should use this project's leader.Election instead, which does not have the limits
// described below.
//
// # Guarantees and limits
//
// The algorithm is client-go's; this package only stores the record. An update succeeds only if the
// record has not changed since the lock last read or wrote it, and writes are acknowledged by a
// majority. So if several candidates try to lead at the same time, only one succeeds.
//
// Everything else depends on time, as with Kubernetes Leases:
//
//   - Each process measures with its own clock how long the record has been unchanged. Clocks may
//     differ, but must run at about the same rate. A process that was frozen, or whose host was
//     suspended, can still act as the leader when it continues.
//   - A leader that cannot renew finds out late: see Durations.
//   - There is no fencing token, so a late write by a former leader cannot be recognized.
//   - When leadership is lost, the context of OnStartedLeading ends, but nothing waits until
//     that function returns. Most programs exit in OnStoppedLeading for this reason.
//
// leader.Election does not have these limits: each term has a fencing token, leases expire by the
// store's clock, and the leader's context ends a grace before another process can lead.
//
// # Durations
//
// A leader that cannot renew its lease stops leading when RenewDeadline plus RetryPeriod have
// passed since the reply to its last renewal. The reply itself can take up to the lock's Timeout.
// To keep other processes from leading before then, choose
//
//	LeaseDuration > RenewDeadline + RetryPeriod + Timeout
//
// With ReleaseOnCancel, use 3·Timeout instead of Timeout; see below. client-go checks only that
// LeaseDuration is greater than RenewDeadline. The durations above, with the default Timeout of
// 2 s, leave a margin of 2 s. With the usual LeaseDuration of 15 s, set Timeout to 900 ms.
//
// Timeout should also be less than half of RenewDeadline, so that a single unanswered command does
// not end the leadership. Use whole seconds for LeaseDuration: client-go stores seconds, rounded
// down, and candidates use the stored value.
//
// # ReleaseOnCancel
//
// Set ReleaseOnCancel. Then, after an orderly stop, another process leads within about two RetryPeriods; without
// ReleaseOnCancel, only after LeaseDuration. The elector releases the lease as soon as the context of Run ends, so end
// the leader's work first, then cancel that context. A renewal in progress at that moment is aborted. If the server has
// stored the renewal nevertheless, the release fails, and another process leads only when the lease has expired.
//
// ReleaseOnCancel has a price. A leader that stops because it cannot renew its lease also tries to release the lease,
// with a Get and an Update. The context of OnStartedLeading ends only after that. If the Update succeeds but its reply
// is late, another process can lead for up to Timeout while the former leader's work still runs. If that must not
// happen, leave ReleaseOnCancel unset, or use leader.Election.
//
// # The collection
//
// There is one document for each election:
//
//	{_id: <name>, version, holder, leaseDurationSeconds, acquireTime, renewTime, transitions,
//	 strategy, preferredHolder}
//
// Each write stores a new ObjectID as version. The first write creates the collection, which must not be the one that
// dsync/mongo uses. The rights to find, insert and update are enough, and the index on _id is the only one needed. This
// package never deletes documents. Do not delete one while processes use it: a process other than the leader may create
// it again, and lead at once.
package clientgo
