// Package gocron lets schedulers of github.com/go-co-op/gocron/v2 in several processes
// share their jobs: by a lock for each job, or by electing the process that runs them all.
// Files that also use that library's package import this one as dsyncgocron.
//
//	locker, err := dsyncgocron.NewLocker(locks, 59*time.Minute, nil) // for hourly jobs
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// or
//
//	elector, err := dsyncgocron.NewElector(election)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	g.Go(func() error { return elector.Run(ctx) })
//
// where locks is a *dsync.Session and election a *leader.Election. All schedulers must
// use the same one of the two, with the same names.
//
// # Locker or Elector
//
// With a Locker a job runs on the process that requests its lock first. The clocks of hosts
// differ, and a gocron.DurationJob counts from the start of each process. So another process may request the lock
// after the first is done, and run the job again. To prevent that, a lock is held for at least the time that is
// passed to [NewLocker]. With an Elector all jobs run on one process, and no clock matters; but jobs that are due
// while nobody leads, for up to a TTL after the leader's crash, are skipped.
//
// With either, a job can also run twice or not at all when a process dies. A job that must run once for
// each of its times uses dsync.Periodic in its function, without a Locker or an Elector. gocron tells
// neither the function nor a Locker for which time it has scheduled a run, so the function has to compute
// that: for an hourly job, time.Now().Add(time.Minute).Truncate(time.Hour) is the last hour that is due, also on
// hosts whose clocks are up to a minute behind. Round would take the next hour for a run that is late.
//
// # Limits
//
// gocron's interfaces can't report a loss. If the lock or the leadership is lost while a job runs,
// the job continues, and another process may begin it after the grace; only dsync.Hooks.Lost and
// the log report the loss. Nor do the interfaces pass the fencing token, so the job's writes can't
// be fenced. A job for which that matters uses dsync.Mutex.Do, or leader.Election.Run, in its own
// function: there the context ends with the loss, and the token is available.
package gocron
