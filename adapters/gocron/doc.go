// Package gocron has schedulers of github.com/go-co-op/gocron/v2 in several processes
// share their jobs: by a lock for each job, or by electing the one that runs them all.
// Files that use that library's package too import this one as dsyncgocron.
//
//	locker, err := dsyncgocron.NewLocker(locks, &dsyncgocron.LockerOptions{AtLeast: time.Minute})
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// or
//
//	elector, err := dsyncgocron.NewElector(election)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	g.Go(func() error { return elector.Run(ctx) })
//
// where locks is a *dsync.Session and election a *leader.Election. All schedulers must
// use the same of the two, with the same names.
//
// # Which of them
//
// With a Locker a job runs on whichever process asks first at its time. Clocks of hosts
// differ, so another may ask when the first is done: that is what AtLeast is for. With
// an Elector all jobs run on one process, and no clock matters; but what comes due
// while nobody leads, for up to a TTL after the leader's crash, is skipped.
//
// # What is given up
//
// gocron's interfaces can't carry a loss. A job that runs when its lock or the
// leadership is lost runs on, while another process may begin it after the grace; a
// lock that is lost is told only by dsync.Hooks.Lost and the log. Nor do they carry the
// fencing token, so what a job writes can't be checked. A job for which that matters
// uses dsync.Mutex.Do, or leader.Election.Run, in its own function: there the context
// ends with the loss, and the token is at hand.
package gocron
