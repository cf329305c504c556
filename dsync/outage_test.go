package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A farStore is a store behind a slow link, which delays every Register.
type farStore struct {
	driver.Store
	by time.Duration
}

func (s farStore) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	select {
	case <-time.After(s.by):
		return s.Store.Register(ctx, m)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// A sharedLog can be read while goroutines write to it.
type sharedLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// If the TTL allows a command less time than the link takes, no command ever succeeds. The error and the log state
// how long an attempt may take.
func TestTTLTooShortForTheLink(t *testing.T) {
	for ttl, want := range map[time.Duration]string{
		time.Second: "no answer within 167ms, a sixth of the TTL; if the store or the link is slower than that, set a longer TTL: context deadline exceeded",
		time.Minute: "no answer within 5s: context deadline exceeded", // a longer TTL would not help
	} {
		bubble(t, func(t *testing.T) {
			var out sharedLog // Close logs, too
			s, err := dsync.New(farStore{dsynctest.NewMemory(), ttl / 5}, &dsync.Options{TTL: ttl, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(background)
			ctx, cancel := context.WithTimeout(background, ttl)
			defer cancel()
			err = s.Mutex("k").LockContext(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("LockContext with a TTL of %v: %v; want %q in it", ttl, err, want)
			}
			synctest.Wait()
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log with a TTL of %v: %s; want %q in it", ttl, out.String(), want)
			}
		})
	}
}

// In an outage of a minute, the log gets these warnings for each kind of command: one when commands begin to fail,
// one every ten seconds with the number of failures, and one when commands succeed again. Failed attempts are not
// logged one by one, but the hook is called for each. The next outage is logged in the same way. A single failure
// takes one line. The cause of a loss includes why the last heartbeat failed.
func TestLogOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		failed := make(map[string]int)
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, &dsync.Options{
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Hooks: &dsync.Hooks{
				StoreError: func(op string, _ error) { failed[op]++ },
				Lost: func(l dsync.HoldInfo) {
					if errors.Is(l.Cause, context.DeadlineExceeded) || !strings.Contains(l.Cause.Error(), "; the last: no answer within ") || !strings.HasSuffix(l.Cause.Error(), ": context deadline exceeded") {
						t.Errorf("lost: %v, want a cause that says in words, without matching DeadlineExceeded, why the last heartbeat failed", l.Cause)
					}
				},
			},
		})
		outage := func(d time.Duration) map[string][]string {
			h := take(t, s.Mutex("k").Hold)
			synctest.Wait() // wait for the hooks and the log
			out.Reset()
			clear(failed)
			f.Cut()
			other := s.Mutex("other")
			locked := make(chan error, 1)
			go func() { locked <- other.LockContext(background) }() // it keeps trying
			time.Sleep(d)
			f.Heal()
			h.Release(background) // this hold was lost
			if err := <-locked; err != nil {
				t.Fatal(err)
			}
			other.Unlock()
			time.Sleep(2 * ttl) // several heartbeats
			synctest.Wait()
			said := make(map[string][]string)
			for line := range strings.Lines(out.String()) {
				if _, op, ok := strings.Cut(line, " op="); ok {
					op, _, _ = strings.Cut(op, " ")
					said[strings.TrimSpace(op)] = append(said[strings.TrimSpace(op)], line)
				}
			}
			return said
		}
		for range 2 {
			said := outage(time.Minute)
			if failed["Register"] < 20 {
				t.Fatalf("failures: %v; the test needs many", failed)
			}
			if first := said["Register"][0]; !strings.Contains(first, "attempt=") {
				t.Errorf("%q: the log does not say how long an attempt may take", first)
			}
			for _, op := range slices.Sorted(maps.Keys(failed)) {
				lines := said[op]
				switch n := failed[op]; {
				case n > 10 && (len(lines) < 3 || len(lines) > 8):
					t.Errorf("%s failed %d times, and the log has %d lines of it:\n%s", op, n, len(lines), strings.Join(lines, ""))
				case n > 1 && !strings.Contains(lines[len(lines)-1], "again"):
					t.Errorf("%s failed %d times, but the log does not say that they are over:\n%s", op, n, strings.Join(lines, ""))
				case n == 1 && len(lines) != 1:
					t.Errorf("%s failed once, and the log has\n%s", op, strings.Join(lines, ""))
				}
			}
		}
	})
}
