//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
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

// While it waits for a key, leasehold says soon that the server does not answer, each minute again, and when it
// answers; but nothing of a request or two that were lost, nor while the key is only held by another.
func TestWaitSaysThatTheServerIsSilent(t *testing.T) {
	for _, args := range [][]string{{"run", "k", "--", "true"}, {"once", "k", "--", "true"}, {"run", "--tick", "1h", "k", "--", "true"}, {"elect", "k", "--", "true"}} {
		for _, lost := range []bool{false, true} { // before it has registered, or later
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				var cut atomic.Bool
				faulty := dsynctest.NewFaulty(memory, func(dsynctest.Request) dsynctest.Fault { return dsynctest.Fault{LoseRequest: cut.Load()} })
				defer faulty.Close()
				other, err := dsync.New(memory, &dsync.Options{TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
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
				a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty}
				end := make(chan int, 1)
				go func() { end <- a.main(ctx, args) }()
				if lost {
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					if got := said.take(); got != "" {
						t.Errorf("%q: %q while it waits for another holder", args, got)
					}
					cut.Store(true)
				}
				time.Sleep(25 * time.Second) // two attempts beside each other, and up to a heartbeat before them
				if got := said.take(); !strings.HasPrefix(got, "leasehold: the server has not answered for ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, `"k" is still waited for: `) {
					t.Errorf("%q: %q soon, want one line that says so", args, got)
				}
				time.Sleep(10 * time.Minute)
				if n := strings.Count(said.take(), "\n"); n < 8 || n > 10 {
					t.Errorf("%q: %d lines in ten minutes, want about one a minute", args, n)
				}
				cut.Store(false)
				time.Sleep(time.Minute)
				lines := strings.Split(said.take(), "\n") // an attempt may have failed before the last one
				if n := len(lines); n > 3 || n < 2 || !strings.HasPrefix(lines[n-2], "leasehold: the server answers again after 10m") {
					t.Errorf("%q: %q, want that it answers again", args, lines)
				}
				cancel()
				if got := <-end; got != exitInterrupted {
					t.Errorf("%q: status %d, want that of an interrupt", args, got)
				}
				if got := said.take(); got != "" {
					t.Errorf("%q: %q at the end", args, got)
				}
			})
		}
	}
}

// Of a whole deployment that the driver describes it says only why a server is out of reach.
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
		if want := `the server has not answered for 3s; "k" is still waited for: connection refused`; said != want {
			t.Errorf("%q, want %q", said, want)
		}
	})
}

// With a TTL that is too short for the network it says what helps.
func TestWaitSaysThatTheTTLIsTooShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		faulty := dsynctest.NewFaulty(dsynctest.NewMemory(), func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 170 * time.Millisecond}
		})
		defer faulty.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		said := new(screen)
		a := &app{stdin: strings.NewReader(""), stdout: new(screen), stderr: said, getenv: func(string) string { return "" }, store: faulty}
		a.main(ctx, []string{"run", "--ttl", "1s", "k", "--", "true"})
		if got := said.take(); !strings.Contains(got, "a command has 166.7ms, a sixth of --ttl, to be answered: raise --ttl") {
			t.Errorf("%q, want the remedy", got)
		}
	})
}
