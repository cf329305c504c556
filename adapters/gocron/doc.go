// Package gocron lets schedulers of github.com/go-co-op/gocron/v2 in several processes share their
// jobs: either each job has a lock, or one elected process runs all jobs. Files that also use that
// library's package import this one as dsyncgocron.
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
// Here locks is a *dsync.Session and election a *leader.Election. All schedulers must use the same
// method, with the same names.
//
// # Locker or Elector
//
// With a Locker, a job runs on the process that requests its lock first. The other processes request the lock at other
// times, because hosts' clocks differ, and because a gocron.DurationJob counts from the start of its process. A process
// that came after the first had finished would run the job again. To prevent that, the lock is held for at least the
// time that is passed to [NewLocker]. With an Elector, all jobs run on one process, and differences between clocks
// don't matter. But jobs that are due while nobody leads are skipped; after the leader has crashed, nobody leads for up
// to a TTL.
//
// With either of them, a job can also run twice or not at all when a process dies. If a job must run once for each
// scheduled time, use a dsync.Periodic in its function, without a Locker or an Elector. The function has to compute the
// time for which a run was scheduled, because gocron does not pass it. For an hourly job,
// time.Now().Add(time.Minute).Truncate(time.Hour) is the last hour that is due, even on hosts whose clocks are up to a
// minute behind. Don't use Round instead: a run that is more than half an hour late would get the next hour.
//
// # Limits
//
// gocron's interfaces have no way to report a loss. If the lock or the leadership is lost while a job runs, the job
// continues, and another process may begin it after the grace. Only dsync.Hooks.Lost and the log report the loss. The
// interfaces don't pass the fencing token either, so the job's writes can't be fenced. If that matters, call
// dsync.Mutex.Do or leader.Election.Run in the job's function. There the context ends when the lock or the leadership
// is lost, and the token is available.
package gocron
