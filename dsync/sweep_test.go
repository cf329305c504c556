package dsync_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// use acquires and releases a key once, as a session that was never registered.
func use(t testing.TB, store driver.Store, key string, kind driver.Kind) {
	t.Helper()
	c := driver.Claim{Key: key, ID: "user.1", Session: "user", Kind: kind, Weight: 1, Limit: 1}
	if _, _, err := storecmd.Acquire(background, store, c, false, nil, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storecmd.Release(background, store, c, driver.Release{}); err != nil {
		t.Fatal(err)
	}
}

// records returns the number of records in the store.
func records(store *dsynctest.Memory) int { return len(store.Records()) + len(store.SessionRecords()) }

// swept returns the state of sweeping, without sweeping anything.
func swept(t testing.TB, store driver.Store) driver.SweepState {
	t.Helper()
	st, err := store.Sweep(background, "", driver.SweepState{Turn: -1}, 0)
	noErr(t, err)
	return st
}

// replaced keeps n sessions running until end is called. Each session is closed after its life and replaced by a new
// one. They are not all closed at the same moment.
func replaced(t testing.TB, store driver.Store, n int, life time.Duration, opt dsync.Options) (end func()) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan bool)
	for i := range n {
		go func() {
			defer func() { done <- true }()
			for left := life * time.Duration(i+1) / time.Duration(n); ctx.Err() == nil; left = life {
				o := opt
				s, err := dsync.New(store, &o)
				if err != nil {
					t.Error(err)
					return
				}
				turn(s.Mutex(fmt.Sprint("own ", i)))
				wait, cancel := context.WithTimeout(ctx, left)
				<-wait.Done()
				cancel()
				s.Close(background)
			}
		}()
	}
	return func() {
		cancel()
		for range n {
			<-done
		}
	}
}

// B22: at a hundred new keys per second, the store never has more than twice the records that the retention requires.
// This holds whatever the names of the keys are, and even if no process lives long.
func TestStoreStaysBounded(t *testing.T) {
	testkit.Large(t)
	const (
		perSecond = 100
		seconds   = 600
		retention = 2 * time.Minute
		kept      = perSecond * int(retention/time.Second)
	)
	draws := testkit.Draw(t)
	for _, tc := range []struct {
		name  string
		key   func(n int) string
		fleet int
		life  time.Duration
	}{
		{"names without order", func(int) string { return fmt.Sprintf("order %016x", draws.Uint64()) }, 3, 2 * time.Minute},
		{"rising names", func(n int) string { return fmt.Sprintf("order %09d", n) }, 3, 2 * time.Minute},
		{"falling names", func(n int) string { return fmt.Sprintf("order %09d", 999_999_999-n) }, 3, 2 * time.Minute},
		{"processes of seconds", func(int) string { return fmt.Sprintf("order %016x", draws.Uint64()) }, 4, 15 * time.Second},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			end := replaced(t, store, tc.fleet, tc.life, dsync.Options{TTL: 10 * time.Second, Retention: retention})
			most := 0
			for second := range seconds {
				for i := range perSecond {
					use(t, store, tc.key(second*perSecond+i), driver.KindMutex)
				}
				time.Sleep(time.Second)
				if second%10 == 0 {
					most = max(most, records(store))
				}
			}
			end()
			t.Logf("at most %d of %d records existed at the same time; the retention requires %d", most, seconds*perSecond, kept)
			if most > kept*2 {
				t.Errorf("there were %d records, want at most twice the %d that the retention requires", most, kept)
			}
		})
	}
}

// B22: the store is swept even if all processes are short-lived. Most processes that live only for seconds send no
// Sweep.
func TestShortLivedProcessesSweep(t *testing.T) {
	testkit.Large(t)
	for _, tc := range []struct {
		name               string
		runs, kept         int
		life, every        time.Duration
		most, sweepsPerRun float64 // bounds: records divided by those that the retention keeps, and Sweeps divided by runs
	}{
		{"a minute each hour", 300, 12, 50 * time.Second, time.Hour, 4, 2},
		{"two seconds each minute", 3000, 120, 2 * time.Second, time.Minute, 6, 0.3},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			for run := range tc.runs {
				s, err := dsync.New(store, &dsync.Options{Retention: time.Duration(tc.kept) * tc.every})
				noErr(t, err)
				turn(s.Mutex(fmt.Sprint("run ", run)))
				time.Sleep(tc.life)
				began := time.Now()
				if err := s.Close(background); err != nil || time.Since(began) > 0 {
					t.Errorf("Close: %v after %v, want nil at once", err, time.Since(began))
				}
				time.Sleep(tc.every - tc.life)
			}
			if n := len(store.Records()); n > int(tc.most*float64(tc.kept)) {
				t.Errorf("%d processes left %d keys, want at most %v times the %d that the retention keeps", tc.runs, n, tc.most, tc.kept)
			}
			if n := store.Counts().Commands[dsynctest.MethodSweep]; n > int(tc.sweepsPerRun*float64(tc.runs)) {
				t.Errorf("%d processes sent %d Sweeps", tc.runs, n)
			}
		})
	}
}

// B22: sweeping also reaches records that come after many records that must stay. This holds even if processes are
// replaced now and then.
func TestSweepReachesRecordsBehindThoseKept(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		for i := range 2000 {
			use(t, store, fmt.Sprintf("election %04d", i), driver.KindElection)
		}
		end := replaced(t, store, 50, 8*time.Hour, dsync.Options{TTL: 10 * time.Minute, Retention: time.Hour})
		time.Sleep(48 * time.Hour)
		var dead int
		for _, id := range store.SessionRecords() {
			m, now, err := storecmd.Members(background, store, id)
			noErr(t, err)
			if m[0].Expired && now.Sub(m[0].LastHeartbeat) > 2*time.Hour {
				dead++
			}
		}
		end()
		if dead > 0 {
			t.Errorf("%d sessions expired more than two hours ago, twice the retention, but were not swept", dead)
		}
		if n := len(store.Records()); n < 2000 {
			t.Errorf("%d of 2,000 keys that count terms are left, want all", n)
		}
	})
}

// B22, promise 7: if there is nothing to sweep, all sessions together sweep about one slice a minute.
func TestFleetSweepsOnceAMinute(t *testing.T) {
	testkit.Large(t)
	for _, fleet := range []int{1, 20, 200} {
		inBubble(t, fmt.Sprint(fleet), func(t *testing.T) {
			store := dsynctest.NewMemory()
			for i := range fleet {
				lock(t, newSession(t, store, &dsync.Options{TTL: 5 * time.Minute, Retention: 7 * 24 * time.Hour}).Mutex(fmt.Sprint(i)))
			}
			time.Sleep(2 * time.Hour)
			turn, before := swept(t, store).Turn, store.Counts()
			time.Sleep(10 * time.Hour)
			if n := swept(t, store).Turn - turn; n < 500 || n > 800 {
				t.Errorf("%d slices were swept in 10 hours, want about 600", n)
			}
			// In ten hours each session checks three or four times whether the sweeping session is alive.
			if n := store.Counts().Since(before).Commands[dsynctest.MethodSweep]; n < 500 || n > 800+4*fleet {
				t.Errorf("%d sessions sent %d Sweeps in 10 hours, want 500 to %d", fleet, n, 800+4*fleet)
			}
		})
	}
}

// A session with a negative Retention never sweeps.
func TestNoSweepWithoutRetention(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		lock(t, newSession(t, store, &dsync.Options{Retention: -1}).Mutex("k"))
		time.Sleep(10 * time.Hour)
		if n := store.Counts().Commands[dsynctest.MethodSweep]; n > 0 {
			t.Errorf("the session sent %d Sweeps", n)
		}
	})
}

// A sweeping is a store whose Sweep method calls a function that the test sets.
type sweeping struct {
	*dsynctest.Memory
	sweep func(session string, last driver.SweepState) (driver.SweepState, error)
}

func (s *sweeping) Sweep(_ context.Context, session string, last driver.SweepState, _ time.Duration) (driver.SweepState, error) {
	return s.sweep(session, last)
}

// The pause between two slices depends on the store's reply and on how long the reply took.
func TestPauseBetweenSlices(t *testing.T) {
	testkit.Large(t)
	const quarter = 42 * time.Hour
	for _, tc := range []struct {
		name   string
		answer driver.SweepState
		took   time.Duration
		want   time.Duration
	}{
		{"a small store", driver.SweepState{Seen: 40, LastRound: 40}, 0, time.Minute},
		{"nothing at all", driver.SweepState{}, 0, time.Minute},
		{"a slice of many", driver.SweepState{After: "k/m", Seen: 500, Deleted: 124, Round: 9_000, LastRound: 30_000}, 0, time.Minute},
		{"a backlog", driver.SweepState{After: "k/m", Seen: 500, Deleted: 125, Round: 9_000, LastRound: 30_000}, 0, 100 * time.Millisecond},
		{"the last of a round that deleted some", driver.SweepState{Seen: 40, Deleted: 30, LastRound: 30_000}, 0, time.Minute},
		{"a first round", driver.SweepState{After: "k/m", Seen: 500, Round: 500}, 0, time.Second},
		{"a first round of a large store", driver.SweepState{After: "k/m", Seen: 500, Round: 120_000_000}, 0, quarter * 500 / 120_000_000},
		{"a large store", driver.SweepState{After: "k/m", Seen: 500, Round: 500, LastRound: 60_000_000}, 0, quarter * 500 / 60_000_000},
		{"one that has grown", driver.SweepState{After: "k/m", Seen: 500, Round: 60_000_000, LastRound: 500}, 0, quarter * 500 / 60_000_000},
		{"one too large", driver.SweepState{After: "k/m", Seen: 500, Round: 500, LastRound: 6_000_000_000}, 0, 100 * time.Millisecond},
		{"a slow server", driver.SweepState{After: "k/m", Seen: 500, Deleted: 500, Round: 500, LastRound: 500}, 2 * time.Second, 8 * time.Second},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			var gaps []time.Duration
			var answered time.Time
			store := &sweeping{Memory: dsynctest.NewMemory()}
			store.sweep = func(session string, last driver.SweepState) (driver.SweepState, error) {
				if !answered.IsZero() {
					gaps = append(gaps, time.Since(answered))
				}
				time.Sleep(tc.took)
				answered = time.Now()
				st := tc.answer
				st.Turn, st.By, st.At, st.Now = last.Turn+1, session, answered, answered
				return st, nil
			}
			s := newSession(t, store, &dsync.Options{TTL: time.Minute, Retention: 4 * quarter})
			lock(t, s.Mutex("k"))
			time.Sleep(20*time.Minute + 20*tc.want)
			if err := s.Close(background); err != nil {
				t.Error(err)
			}
			if len(gaps) < 5 || slices.Min(gaps) < tc.want*89/100 || slices.Max(gaps) > tc.want*111/100 {
				t.Errorf("%d pauses from %v to %v, want %v", len(gaps), slices.Min(gaps), slices.Max(gaps), tc.want)
			}
		})
	}
}

// If a session finds that another session is sweeping, or if its own Sweep fails, it checks less and less often.
func TestSweepersStayAway(t *testing.T) {
	testkit.Large(t)
	const retention = 7 * 24 * time.Hour
	for _, tc := range []struct {
		name     string
		turn     func(sweeps int, last int64) int64
		ago      time.Duration
		err      error
		min, max int // Sweeps in two days
	}{
		{"another sweeps", func(n int, _ int64) int64 { return int64(n) }, 30 * time.Second, nil, 6, 16},
		{"another swept long ago", func(_ int, last int64) int64 { return max(7, last) }, 3 * time.Minute, nil, 6, 17},
		{"a store that has no state", func(int, int64) int64 { return 0 }, 0, nil, 6, 16},
		{"refused", func(int, int64) int64 { return 0 }, 0, dsync.ErrRefused, 6, 16},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			var sent atomic.Int32
			store := &sweeping{Memory: dsynctest.NewMemory()}
			store.sweep = func(_ string, last driver.SweepState) (driver.SweepState, error) {
				n := int(sent.Add(1))
				if n > 1000 {
					time.Sleep(time.Hour) // so that the test ends even if the session sends far too many Sweeps
				}
				return driver.SweepState{Turn: tc.turn(n, last.Turn), By: "another", At: time.Now().Add(-tc.ago), Now: time.Now(), Seen: 1, LastRound: 1}, tc.err
			}
			lock(t, newSession(t, store, &dsync.Options{TTL: time.Hour, Retention: retention}).Mutex("k"))
			time.Sleep(48 * time.Hour)
			if n := int(sent.Load()); n < tc.min || n > tc.max {
				t.Errorf("the session sent %d Sweeps in two days, want from %d to %d", n, tc.min, tc.max)
			}
		})
	}
}

// If the sweeping session is cut off, another session soon continues where the sweeping session stopped.
func TestSweeperIsReplaced(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		for i := range 5000 {
			use(t, memory, fmt.Sprintf("election %04d", i), driver.KindElection)
		}
		var turns []driver.SweepState
		opt := &dsync.Options{Retention: 4 * time.Hour} // a round of 50 slices takes an hour
		for range 8 {
			f := newFaulty(t, memory, nil)
			lock(t, newSession(t, f, opt).Mutex(fmt.Sprint("own ", time.Now().UnixNano())))
			for began := time.Now(); time.Since(began) < 20*time.Minute; time.Sleep(time.Second) {
				if st := swept(t, memory); len(turns) == 0 || st.Turn != turns[len(turns)-1].Turn {
					turns = append(turns, st)
				}
			}
			f.Cut()
		}
		synctest.Wait()
		by := make(map[string]bool)
		for i := 2; i < len(turns); i++ { // the first turn has no predecessor
			last, st := turns[i-1], turns[i]
			by[st.By] = true
			if st.After != "" && st.After <= last.After {
				t.Errorf("turn %d by %s ends at %q, but the turn before had reached %q (by %s)", st.Turn, st.By, st.After, last.After, last.By)
			}
			// The time of a session's first check is exponentially distributed with a mean of a minute. It comes later
			// than a quarter of an hour only once in three million cases.
			if d := st.At.Sub(last.At); d > 18*time.Minute {
				t.Errorf("%v passed between turns %d and %d, want at most 18m", d, last.Turn, st.Turn)
			}
		}
		if len(by) < 8 || len(turns) < 80 {
			t.Errorf("%d sessions swept %d slices in 160 minutes, want 8 sessions and at least 80 slices", len(by), len(turns))
		}
	})
}

// A Sweep that hangs delays neither heartbeats nor Close.
func TestHungSweepDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var swept, beats atomic.Int32 // Sweeps sent, and heartbeats since the first of them
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) (fault dsynctest.Fault) {
			if r.Method == dsynctest.MethodSweep {
				swept.Add(1)
				fault.Delay = time.Hour
			}
			if r.Method == dsynctest.MethodHeartbeat && swept.Load() > 0 {
				beats.Add(1)
			}
			return fault
		})
		opt := &dsync.Options{TTL: time.Hour, HeartbeatInterval: time.Second, Retention: 4 * time.Hour}
		s := newSession(t, f, opt)
		m := s.Mutex("k")
		lock(t, m)
		for swept.Load() == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(4 * time.Second) // shorter than an attempt may take
		if err := s.Healthy(); err != nil || swept.Load() > 1 || beats.Load() < 3 {
			t.Errorf("while a Sweep hangs: Healthy is %v, %d heartbeats in 4 s, %d Sweeps", err, beats.Load(), swept.Load())
		}
		m.Unlock()
		began := time.Now()
		if err := s.Close(background); err != nil || time.Since(began) > 0 {
			t.Errorf("Close: %v after %v, want nil at once", err, time.Since(began))
		}
	})
}
