package recipes_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// schedule enqueues periodic tasks while this process leads.
func schedule(ctx context.Context, election *leader.Election, redis asynq.RedisConnOpt, opt *asynq.SchedulerOpts) error {
	return election.Run(ctx, func(ctx context.Context) error {
		scheduler := asynq.NewScheduler(redis, opt) // one for each term: it can't be started twice
		if _, err := scheduler.Register("* * * * *", asynq.NewTask("report", nil)); err != nil {
			return err // the spec is wrong: Run returns this
		}
		if err := scheduler.Start(); err != nil {
			return err
		}
		<-ctx.Done()         // until leadership ends, for whatever reason
		scheduler.Shutdown() // waits for the task that is being enqueued
		return nil           // now another process may lead
	})
}

// enqueueEachMinute enqueues one task per minute in the whole fleet.
func enqueueEachMinute(c *cron.Cron, locker *robfigcron.Locker, client *asynq.Client) error {
	_, err := locker.AddPeriodic(c, "* * * * *", "report", func(ctx context.Context, tick time.Time) error {
		id := asynq.TaskID("report " + tick.UTC().Format(time.RFC3339))
		_, err := client.EnqueueContext(ctx, asynq.NewTask("report", nil), id, asynq.Retention(time.Hour))
		if errors.Is(err, asynq.ErrTaskIDConflict) { // by a process that died right afterwards
			return nil
		}
		return err
	})
	return err
}

// oneAtATime lets the whole fleet handle only one task of each type at a time.
func oneAtATime(locks *dsync.Session) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			hold, err := locks.Mutex("tasks/" + task.Type()).TryHold(ctx)
			if err != nil {
				return err // asynq tries again later
			}
			defer hold.Release(ctx)
			return next.ProcessTask(hold.Context(ctx), task) // ends if the lock is lost
		})
	}
}

// isFailure is an asynq.Config.IsFailure. With it, a task that must wait uses up no retry.
func isFailure(err error) bool { return !errors.Is(err, dsync.ErrHeld) }

// inBubble makes clients of an in-memory Redis.
type inBubble struct{ m *miniredis.Miniredis }

func (r inBubble) MakeRedisClient() any {
	return redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // never dialed; must be an IP address, because looking up a name would hang the bubble
		Dialer: func(context.Context, string, string) (net.Conn, error) { return r.m.Dial() },
	})
}

func newRedis(t testing.TB) inBubble {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return inBubble{m}
}

// The leader enqueues one task each minute. When the leader is cut off, at most one task is
// missed, and the next leader uses a new scheduler.
func TestAsynqSchedulerRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := cuttable(t, store)
		redis := newRedis(t)
		type tick struct {
			process string
			minute  time.Time
		}
		var mu sync.Mutex
		var ticks []tick
		start := func(process string, e *leader.Election) (stop func() error) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			opt := &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ticks = append(ticks, tick{process, time.Now().Truncate(time.Minute)})
			}}
			go func() { ended <- schedule(ctx, e, redis, opt) }()
			return func() error { cancel(); return <-ended }
		}
		check := func(when, process string, atLeast, atMost int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if n := len(ticks); n < atLeast || n > atMost {
				t.Errorf("%s: %d ticks, want %d to %d", when, n, atLeast, atMost)
			}
			for i, k := range ticks {
				if k.process != process {
					t.Errorf("%s: enqueued by %s", when, k.process)
				}
				if i > 0 && !k.minute.After(ticks[i-1].minute) {
					t.Errorf("%s: two ticks in one minute: %v", when, ticks)
				}
			}
			ticks = nil
		}
		a, b := elect(t, process(t, link, "a"), "schedule"), elect(t, process(t, store, "b"), "schedule")
		stopA := start("a", a)
		synctest.Wait()
		stopB := start("b", b)
		time.Sleep(10*time.Minute + time.Second)
		check("a leads", "a", 10, 10)
		link.Cut()
		time.Sleep(10 * time.Minute)
		check("a is cut off", "b", 9, 10)
		link.Heal()
		time.Sleep(2 * time.Minute)
		check("a is back", "b", 2, 2)
		if err := stopB(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(3 * time.Minute)
		check("b has stopped", "a", 3, 3)
		if err := stopA(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
		check("both have stopped", "", 0, 0)
	})
}

// All processes have the same crontab. One task is enqueued each minute, even while one process is
// cut off.
func TestAsynqEnqueuesEachMinuteOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := cuttable(t, store)
		redis := newRedis(t)
		client := asynq.NewClient(redis)
		defer client.Close()
		for _, s := range []*dsync.Session{process(t, link, "a"), process(t, store, "b")} {
			locker, err := robfigcron.NewLocker(s, &robfigcron.Options{Logger: cron.DiscardLogger})
			if err != nil {
				t.Fatal(err)
			}
			c := cron.New(cron.WithLogger(cron.DiscardLogger))
			if err := enqueueEachMinute(c, locker, client); err != nil {
				t.Fatal(err)
			}
			c.Start()
			defer func() { <-c.Stop().Done() }()
		}
		time.Sleep(5*time.Minute + time.Second)
		link.Cut()
		time.Sleep(5 * time.Minute)
		link.Heal()
		time.Sleep(5 * time.Minute)
		inspector := asynq.NewInspector(redis)
		defer inspector.Close()
		info, err := inspector.GetQueueInfo("default")
		if err != nil || info.Pending != 15 {
			t.Errorf("%+v, %v; want a task for each of 15 minutes", info, err)
		}
	})
}

// Of two tasks of the same type, only one is handled at a time. The other is retried later;
// this does not count as a failure.
func TestAsynqHandlesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var runs atomic.Int64
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			runs.Add(1)
			time.Sleep(5 * time.Minute)
			return nil
		})
		a, b := oneAtATime(process(t, store, "a"))(handler), oneAtATime(process(t, store, "b"))(handler)
		task := asynq.NewTask("report", nil)
		done := make(chan error)
		go func() { done <- a.ProcessTask(t.Context(), task) }()
		synctest.Wait()
		err := b.ProcessTask(t.Context(), task)
		if !errors.Is(err, dsync.ErrHeld) || isFailure(err) || runs.Load() != 1 {
			t.Errorf("%v after %d runs, want ErrHeld", err, runs.Load())
		}
		if !isFailure(errors.New("broken")) {
			t.Error("isFailure is false for other errors, want true")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := b.ProcessTask(t.Context(), task); err != nil || runs.Load() != 2 {
			t.Errorf("when it is free: %v, %d runs", err, runs.Load())
		}
	})
}
