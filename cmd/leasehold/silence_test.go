//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// If the server does not answer while leasehold waits for a key, leasehold soon reports that, repeats the report every
// minute, and reports when the server answers again. As long as the server answers, it reports nothing, even if another
// process holds the key for minutes.
func TestWaitSaysThatTheServerIsSilent(t *testing.T) {
	for _, args := range [][]string{{"run", "k", "--", "true"}, {"once", "k", "--", "true"}, {"run", "--tick", "1h", "k", "--", "true"}, {"elect", "k", "--", "true"}} {
		for _, lost := range []bool{false, true} { // true: the server falls silent after three minutes; false: it is silent from the start
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				var cut atomic.Bool
				faulty := dsynctest.NewFaulty(memory, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{LoseRequest: cut.Load()} })
				defer faulty.Close()
				other, err := dsync.New(memory, &dsync.Options{TTL: time.Hour})
				noErr(t, err)
				defer other.Close(context.Background())
				kind := map[string]string{"once": "once", "elect": "election"}[args[0]]
				if kind == "" {
					kind = "mutex"
				}
				if args[1] == "--tick" {
					kind = "periodic"
				}
				h := holdAs(t, other, "k", driver.Kind(kind))
				defer h.Release(context.Background())

				cut.Store(!lost)
				said := new(screen)
				ctx, cancel := context.WithCancel(t.Context())
				a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty, noKeeper: true}
				end := make(chan int, 1)
				go func() { end <- a.main(ctx, args) }()
				if lost {
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					if got := said.take(); got != "" {
						t.Errorf("%q: printed %q while waiting for another holder", args, got)
					}
					cut.Store(true)
				}
				time.Sleep(25 * time.Second) // enough for the next heartbeat and two time-outs
				if got := said.take(); !strings.HasPrefix(got, "leasehold: the server has not answered for ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, `still waiting for "k": `) {
					t.Errorf("%q: printed %q, want one line about the silence", args, got)
				}
				time.Sleep(10 * time.Minute)
				if n := strings.Count(said.take(), "\n"); n < 8 || n > 10 {
					t.Errorf("%q: %d lines in ten minutes, want about one a minute", args, n)
				}
				cut.Store(false)
				time.Sleep(time.Minute)
				lines := strings.Split(said.take(), "\n") // another failure may have been reported just before
				if n := len(lines); n > 3 || n < 2 || !strings.HasPrefix(lines[n-2], "leasehold: the server answers again after 10m") {
					t.Errorf("%q: printed %q, want a line that the server answers again", args, lines)
				}
				cancel()
				if got := <-end; got != exitInterrupted {
					t.Errorf("%q: status %d, want the status of an interrupt", args, got)
				}
				if got := said.take(); got != "" {
					t.Errorf("%q: printed %q at the end", args, got)
				}
			})
		}
	}
}

// If the driver's error describes the whole deployment, the report contains only the reason why a server is
// unreachable.
func TestWaitSaysWhyInShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		said := ""
		s := silence{say: func(err error) { said = err.Error() }, key: "k", ttl: time.Minute}
		s.wait(true)
		err := fmt.Errorf("mongo: register: %w", topology.ServerSelectionError{
			Wrapped: context.DeadlineExceeded,
			Desc:    description.Topology{Servers: []description.Server{{}, {LastError: errors.New("connection\nrefused")}}},
		})
		s.failed("Register", err)
		time.Sleep(firstSaid)
		s.failed("Register", err)
		if want := `the server has not answered for 3s; still waiting for "k": connection refused`; said != want {
			t.Errorf("printed %q, want %q", said, want)
		}
	})
}

// If the TTL is too short for the network, the report suggests a longer one.
func TestWaitSaysThatTheTTLIsTooShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 170 * time.Millisecond}
		})
		defer faulty.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		said := new(screen)
		a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty, noKeeper: true}
		a.main(ctx, []string{"run", "--ttl", "1s", "k", "--", "true"})
		if got := said.take(); !strings.Contains(got, "a command times out after 166.7ms, a sixth of --ttl: raise --ttl") {
			t.Errorf("printed %q, want the advice to raise --ttl", got)
		}
	})
}

// If the server does not answer, leasehold ends within the 10 s after which docker stop kills a container, whether it is
// interrupted while it waits for the key, or its command has ended.
func TestSilentServerDelaysTheEndLittle(t *testing.T) {
	const limit = 9 * time.Second
	for _, ttl := range []time.Duration{6 * time.Second, 30 * time.Second, time.Hour} {
		bubble(t, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			faulty := dsynctest.NewFaulty(memory, nil)
			defer faulty.Close()
			other, err := dsync.New(memory, &dsync.Options{TTL: time.Hour})
			noErr(t, err)
			defer other.Close(context.Background())
			defer holdAs(t, other, "held", driver.KindMutex).Release(context.Background())
			said := new(screen)
			a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty, noKeeper: true}
			ctx, cancel := context.WithCancel(t.Context())
			end := make(chan int, 1)
			go func() { end <- a.main(ctx, []string{"run", "--ttl", ttl.String(), "held", "--", "true"}) }()
			time.Sleep(time.Second)
			s, err := dsync.New(faulty, &dsync.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
			noErr(t, err)
			h, sealed := holdAs(t, s, "k", driver.KindMutex), holdAs(t, s, "once", driver.KindOnce)

			faulty.Cut()
			began := time.Now()
			cancel()
			if got := <-end; got != exitInterrupted {
				t.Errorf("TTL %v: status %d while waiting, want the status of an interrupt", ttl, got)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("TTL %v: the interrupted wait ended after %v, want at most %v", ttl, took, limit)
			}
			began = time.Now()
			j := &job{key: "k", kind: driver.KindMutex}
			sealing := make(chan error, 1)
			go func() { sealing <- (&job{tick: 1}).seal(sealed) }()
			j.release(a, h)
			if err := <-sealing; err == nil {
				t.Errorf("TTL %v: the success counts as recorded", ttl)
			}
			j.close(a, s)
			if took := time.Since(began); took > limit {
				t.Errorf("TTL %v: the key was given up after %v, want at most %v", ttl, took, limit)
			}
			if n := strings.Count(said.take(), `"k" may not have been released`); n > 1 {
				t.Errorf("TTL %v: %d lines say that the key may not have been released, want at most one", ttl, n)
			}
		})
	}
}

// If the server confirms no registration, leasehold says that, and not that others were ahead.
func TestSaysThatTheServerIsSilent(t *testing.T) {
	for flag, want := range map[string]failure{
		"--timeout=2s": {exitTimeout, errors.New(`leasehold: "k" was not free within 2s: dsync: mutex "k": context deadline exceeded`)},
		"--try":        {exitUnreachable, errors.New(`leasehold: dsync: try to hold "k": no answer within 5s`)},
	} {
		t.Run(flag, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
					return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRegister}
				})
				defer faulty.Close()
				said := new(screen)
				a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty, noKeeper: true}
				status := a.main(t.Context(), []string{"run", flag, "k", "--", "true"})
				if got := said.take(); status != want.status || !strings.HasPrefix(got, want.err.Error()) {
					t.Errorf("status %d, printed %q, want %d and %q…", status, got, want.status, want.err)
				}
			})
		})
	}
}
