// Package robfigcron lets processes with the same crontab, of github.com/robfig/cron/v3,
// share its jobs: at each of its times a job runs on one of them.
//
//	locker, err := robfigcron.NewLocker(locks, nil)
//	c := cron.New()
//	_, err = c.AddJob("@hourly", cron.NewChain(locker.JobWrapper("report", 59*time.Minute)).Then(job))
//	_, err = c.AddJob("@daily", locker.Job("invoices", 23*time.Hour, func(ctx context.Context) { … }))
//	_, err = locker.AddPeriodic(c, "0 2 * * *", "nightly", func(ctx context.Context, tick time.Time) error { … })
//
// where locks is a *dsync.Session. All processes must use the same names for the jobs.
//
// # Once for each time
//
// [Locker.AddPeriodic] is for jobs that must run once, and not be skipped, at each of their times: it
// goes by the time of the schedule, so clocks need to be right only roughly, and if a run fails, another process
// repeats it. Changes of the local time neither skip nor repeat a time of the day. With the other two, a run that
// would overlap with another is skipped; their times are those of cron, which skips "30 2 * * *" on the day on
// which summer time begins, for example.
//
// # How long a lock is held
//
// A job runs on the process that requests its lock first. The clocks of hosts differ, and "@every 1h" counts from
// the start of each process. So another process may request the lock after the first is done, and run the job again.
// To prevent that, a lock is held for at least the time that is passed to [Locker.JobWrapper] or [Locker.Job]: nearly the
// job's period. [Locker.AddPeriodic] needs no such time.
//
// # Skipped and lost runs
//
// A time at which no process can lock the job, because the store is unreachable, is
// skipped. So is the rest of a run whose process dies: nobody repeats it. The next time
// is not skipped, because the locks of a crashed process become free when its session's
// TTL runs out.
//
// A run can lose its lock: when its process can't reach the store for most of the TTL, or somebody
// uses Break. A cron.Job has no context, so a wrapped job continues, and another process may begin
// it after the session's grace; the loss is logged. If that matters, use [Locker.Job]: its context
// ends with the hold, before anyone else can begin.
package robfigcron
