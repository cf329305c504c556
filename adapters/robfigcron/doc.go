// Package robfigcron lets processes that have the same crontab of github.com/robfig/cron/v3 share
// its jobs: whenever a job is due, it runs on one of the processes.
//
//	locker, err := robfigcron.NewLocker(locks, nil)
//	c := cron.New()
//	_, err = c.AddJob("@hourly", cron.NewChain(locker.JobWrapper("report", 59*time.Minute)).Then(job))
//	_, err = c.AddJob("@daily", locker.Job("invoices", 23*time.Hour, func(ctx context.Context) { … }))
//	_, err = locker.AddPeriodic(c, "0 2 * * *", "nightly", func(ctx context.Context, tick time.Time) error { … })
//
// Here locks is a *dsync.Session. All processes must use the same names for the jobs.
//
// # Once for each time
//
// [Locker.AddPeriodic] is for jobs that must run once for each scheduled time, and never be skipped. It identifies a
// run by its scheduled time, so hosts' clocks need only be roughly right. If a run fails, another process repeats it.
// When clocks are changed for daylight saving time, no time of the day is skipped or repeated. [Locker.JobWrapper] and
// [Locker.Job] skip a run that would overlap with another. They use cron's own times: cron skips "30 2 * * *" on the
// day when summer time begins, for example.
//
// # How long a lock is held
//
// A job runs on the process that requests its lock first. The other processes request the lock at other times, because
// hosts' clocks differ, and because "@every 1h" counts from the start of each process. A process that came after the
// first had finished would run the job again. To prevent that, the lock is held for at least the time that is passed to
// [Locker.JobWrapper] or [Locker.Job]. That time should be nearly the job's period. [Locker.AddPeriodic] needs no such
// time.
//
// # Skipped and lost runs
//
// With [Locker.JobWrapper] and [Locker.Job], a run is skipped if the store is unreachable from every process when the
// job is due. If a process dies during a run, no other process repeats that run. Later runs are not skipped, because a
// crashed process's locks become free when its session's TTL runs out.
//
// A run loses its lock if its process can't reach the store for most of the TTL, or if somebody breaks the lock. The
// loss is logged. A cron.Job has no context, so a wrapped job continues, and another process may begin it after the
// session's grace. If that matters, use [Locker.Job]: its context ends when the lock is lost, before another process
// can begin the job.
package robfigcron
