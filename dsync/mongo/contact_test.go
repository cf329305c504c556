package mongo_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// interruptions are temporary failures. Most are errors: from a server that has stepped down or is not the primary yet,
// from an overloaded or full server, and from a router that cannot reach its shards. The others are a killed command, a
// lost reply, and writes that no majority has confirmed.
var interruptions = map[string]func(call) bson.D{
	"stepping down":  func(call) bson.D { return refusal(11602, "InterruptedDueToReplStateChange") },
	"not a primary":  func(call) bson.D { return refusal(10107, "NotWritablePrimary") },
	"stepped down":   func(call) bson.D { return refusal(189, "PrimarySteppedDown") },
	"shutting down":  func(call) bson.D { return refusal(11600, "InterruptedAtShutdown") },
	"no primary yet": func(call) bson.D { return refusal(133, "FailedToSatisfyReadPreference") },
	"overloaded":     func(call) bson.D { return overloaded(462) },
	"shedding":       func(call) bson.D { return overloaded(463) },
	"retry":          func(call) bson.D { return append(refusal(1, "Any"), e("errorLabels", bson.A{"RetryableError"})) },
	"writes blocked": func(call) bson.D { return refusal(371, "UserWritesBlocked") },
	"cache full":     func(call) bson.D { return refusal(365, "TemporarilyUnavailable") },
	"quota":          func(call) bson.D { return overQuota },
	"disk full":      func(call) bson.D { return refusal(14031, "OutOfDiskSpace") },
	"killed":         func(call) bson.D { return refusal(11601, "Interrupted") },
	"shard away":     func(call) bson.D { return refusal(202, "NetworkInterfaceExceededTimeLimit") },
	"stale routing":  func(call) bson.D { return refusal(13388, "StaleConfig") },
	"lost":           func(call) bson.D { return lost },
	"not confirmed": func(c call) bson.D {
		return append(honest(c), e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")}))
	},
	"stepped down meanwhile": func(c call) bson.D {
		return append(honest(c), e("writeConcernError", bson.D{e("code", 11602), e("errmsg", "operation was interrupted")}))
	},
}

// Atlas's answers to a write while a small cluster is full, to a command that the user may not send, and to a wrong
// password.
var (
	overQuota  = atlas("you are over your space quota, using 513 MB of 512 MB")
	notAllowed = atlas("user is not allowed to do action [update] on [app.leasehold]")
	badAuth    = atlas("bad auth : Authentication failed.")
)

func atlas(says string) bson.D {
	return bson.D{e("ok", 0), e("code", 8000), e("codeName", "AtlasError"), e("errmsg", says)}
}

// overloaded returns the error of a server that sheds load, as MongoDB from 8.2 on and hosted servers do.
func overloaded(code int) bson.D {
	return append(refusal(code, "Overloaded"), e("errorLabels", bson.A{"SystemOverloadedError", "RetryableError", "NoWritesPerformed"}))
}

// B41: during a temporary state, such as a step-down, Open waits, whichever of its commands fails.
func TestOpenWaitsForWhatPasses(t *testing.T) {
	const election = 12 * time.Second
	for name, interrupted := range interruptions {
		for _, nth := range []int{1, 3, 10, 26} {
			inBubble(t, name, func(t *testing.T) {
				f := newFake(t)
				client := f.client()
				var since time.Time
				f.script(func(c call) bson.D {
					if len(f.took()) == nth {
						since = time.Now()
					}
					if c.name != "aggregate" && !since.IsZero() && time.Since(since) < election {
						return interrupted(c)
					}
					return honest(c)
				})
				start := time.Now()
				s, err := dsyncmongo.Open(context.Background(), client.Database("app"), nil)
				if err != nil {
					t.Fatalf("%v, after %v", err, time.Since(start))
				}
				if took := time.Since(start); took < election || took > election+3*time.Second {
					t.Errorf("Open took %v, want it soon after the election of %v", took, election)
				}
				if n := len(f.took()); n > 150 {
					t.Errorf("%d commands were sent, want at most 150", n)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Open waits for a slow server as long as ctx allows, even if the probe takes minutes.
func TestOpenWaitsForASlowServer(t *testing.T) {
	const pause = 4 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(func(c call) bson.D {
			time.Sleep(pause)
			return honest(c)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		start := time.Now()
		s, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
		if err != nil {
			t.Fatalf("%v, after %v and %d commands", err, time.Since(start), len(f.took()))
		}
		if n, took := len(stepsOfAProbe), time.Since(start); took != time.Duration(n)*pause || len(f.took()) != n {
			t.Errorf("Open took %v and %d commands, want %d commands of %v", took, len(f.took()), n, pause)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If the server does not answer a command for half a minute, Open tries again, even if ctx allows a longer wait.
func TestOpenTriesAgainAfterSilence(t *testing.T) {
	for _, nth := range []int{1, 2, 3, 10, len(stepsOfAProbe) - 5, len(stepsOfAProbe)} {
		inBubble(t, stepsOfAProbe[nth-1], func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(func(c call) bson.D {
				if len(f.took()) == nth {
					return silent
				}
				return honest(c)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			s, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
			noErr(t, err)
			if took := time.Since(start); took < 30*time.Second || took > 33*time.Second {
				t.Errorf("Open took %v, want it soon after half a minute of silence", took)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Open waits as long as ctx allows, or half a minute if ctx has no deadline. Its error wraps both the server's
// error and context.DeadlineExceeded. Once a minute, it logs a warning with the reason.
func TestOpenWaitsNoLongerThanItMay(t *testing.T) {
	for _, limit := range []time.Duration{0, 5 * time.Second, 2 * time.Minute} {
		interrupted, says := interruptions["stepping down"], "InterruptedDueToReplStateChange"
		if limit == 2*time.Minute {
			interrupted, says = interruptions["writes blocked"], "UserWritesBlocked"
		}
		inBubble(t, limit.String(), func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(interrupted)
			ctx, want := context.Background(), 30*time.Second
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
				want = limit
			}
			start := time.Now()
			var log strings.Builder
			opt := &dsyncmongo.Options{Session: dsync.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}}
			_, err := dsyncmongo.Open(ctx, client.Database("app"), opt)
			if n, minutes := strings.Count(log.String(), "trying again"), int((want+time.Minute-1)/time.Minute); n != minutes {
				t.Errorf("%d warnings in %v, want %d: %s", n, want, minutes, &log)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want the server's error and context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("Open took %v, want %v", took, want)
			}
		})
	}
}

// Open returns at once when its ctx is cancelled.
func TestOpenIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(interruptions["not a primary"])
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		start := time.Now()
		if _, err := dsyncmongo.Open(ctx, client.Database("app"), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("Open took %v, want it to end with ctx after 7 s", took)
		}
	})
}

// If waiting cannot help, Open returns the error after one try.
func TestOpenFailsAtOnce(t *testing.T) {
	wrong := func(c call) bson.D { return ok(e("value", bson.D{}), e("n", 1)) }
	for name, answer := range map[string]func(call) bson.D{
		"no right":      func(call) bson.D { return refusal(13, "Unauthorized") },
		"not on Atlas":  func(call) bson.D { return notAllowed },
		"bad password":  func(call) bson.D { return badAuth },
		"no such thing": func(call) bson.D { return refusal(59, "CommandNotFound") },
		"wrong answers": wrong,
		"unknown code":  func(call) bson.D { return refusal(96, "OperationFailed") },
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			client := f.client()
			f.script(answer)
			start := time.Now()
			_, err := dsyncmongo.Open(t.Context(), client.Database("app"), nil)
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the server's error", err)
			}
			if name != "unknown code" && !errors.Is(err, driver.ErrRefused) {
				t.Errorf("got %v, want ErrRefused", err)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("Open took %v, want it to fail at once", took)
			}
		})
	}
}
