package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// idleOptions returns options with which a session sends nothing by itself for ten seconds: no heartbeats, no polls
// and no sweeps.
func idleOptions() dsync.Options {
	return dsync.Options{TTL: 36 * time.Second, PollInterval: 10 * time.Minute, Retention: -1}
}

// warm registers the session and makes it remember the key.
func warm(t *testing.T, s *dsync.Session, key string) *dsync.Mutex {
	t.Helper()
	m := s.Mutex(key)
	release(t, lock(t, m))
	return m
}

// MongoDB is probed once for each collection, any other server at each Open.
func TestCostOfOpen(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const probe, together = 45, 12 // commands, if the server is MongoDB
		first := 4 + probe
		if !s.Has(server.Need{Sharded: true}) {
			first += together
		}
		r := newRoom(t, s)
		for i, want := range []int{first, 2, 2} {
			mon := newMonitor(r.DB)
			r.session(idleOptions(), mon.client())
			if sent := mon.commands(nil); len(sent) != want && !s.FerretDB() || len(sent) <= probe && s.FerretDB() {
				t.Errorf("Open %d sent %d commands, want %d, or more than %d if the server is not MongoDB: %v", i+1, len(sent), want, probe, sent)
			}
			mon.noDuplicates(t)
		}
	})
}

// A leasehold run of a short command sends five commands if the server has passed the probe: Open's check, Register, the
// short Acquire and Release, and Unregister. On a replica set, three of them wait for a majority.
func TestCostOfAShortProgram(t *testing.T) {
	lab.Each(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		spy := newSpy(newRoom(t, s))
		for range 2 { // the first is probed
			spy.forget()
			cmd := spy.command("run", "--ttl", "5m", "--connect-timeout", "1m")
			cmd.Args = append(cmd.Args, "short", "--", "true")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("leasehold run: %v: %s", err, out)
			}
		}
		var sent, waited []string
		for _, c := range spy.took("") {
			if c.Name == "hello" || c.Name == "endSessions" || c.Name == "ping" {
				continue // the driver sends these, too
			}
			sent = append(sent, c.Name)
			if w, _ := c.Body.Lookup("writeConcern", "w").StringValueOK(); w == "majority" {
				waited = append(waited, c.Name)
			}
		}
		want := []string{"findAndModify", "findAndModify", "update", "update", "findAndModify"}
		if !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
		if s.Has(server.Need{Oplog: true}) && !s.Has(server.Need{Sharded: true}) {
			want = []string{"findAndModify", "update", "findAndModify"}
		}
		if !slices.Equal(waited, want) {
			t.Errorf("waited for a majority in %v, want %v", waited, want)
		}
	})
}

func TestCostUncontended(t *testing.T) {
	const n = 20
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		m := warm(t, r.session(idleOptions(), mon.client()), "uncontended")
		var log *oplog
		if s.Has(server.Need{Oplog: true}) {
			log = newOplog(t, r)
		}
		mon.reset()
		for range n {
			m.Lock()
			//lint:ignore SA2001 the commands of Lock and Unlock are counted
			m.Unlock()
		}
		// No command sends a notice, since nobody waits. Heartbeats and the listener's commands don't count: on a slow
		// machine a heartbeat may be due, or the session may hold the key so long that it listens.
		if sent := mon.commands(func(c command) bool { return !byItself(c) }); len(sent) != 2*n {
			t.Errorf("%d commands for %d times Lock and Unlock, want %d: %v", len(sent), n, 2*n, sent)
		}
		if log != nil {
			if w := log.writes(t, "k/"); w != 2*n {
				t.Errorf("%d writes for %d times Lock and Unlock, want %d", w, n, 2*n)
			}
		}
		mon.noDuplicates(t)
	})
}

// On a key without a record, and on a key that another process used last, Lock and Unlock together send two update
// commands and make two writes.
func TestCostOfUnknownKeys(t *testing.T) {
	const n = 20
	lab.Each(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		session := r.session(idleOptions(), mon.client())
		warm(t, session, "warm")
		other := r.session(idleOptions())
		for _, c := range []struct {
			name string
			key  func(i int) string
		}{
			{"without a record", func(i int) string { return fmt.Sprint("new ", i) }},
			{"of another process", func(i int) string { return fmt.Sprint("used ", i) }},
		} {
			for i := range n {
				warm(t, other, fmt.Sprint("used ", i))
			}
			time.Sleep(100 * time.Millisecond) // a token may be a few ms behind the server's clock
			var log *oplog
			if s.Has(server.Need{Oplog: true}) {
				log = newOplog(t, r)
			}
			mon.reset()
			for i := range n {
				m := session.Mutex(c.key(i))
				m.Lock()
				//lint:ignore SA2001 the commands of Lock and Unlock are counted
				m.Unlock()
			}
			sent := mon.commands(aboutKey)
			if len(sent) != 2*n || slices.ContainsFunc(sent, func(c command) bool { return c.name != "update" }) {
				t.Errorf("%s: %d commands for %d times Lock and Unlock, want %d updates: %v", c.name, len(sent), n, 2*n, sent)
			}
			if log != nil {
				if w := log.writes(t, "k/"); w != 2*n {
					t.Errorf("%s: %d writes for %d times Lock and Unlock, want %d", c.name, w, n, 2*n)
				}
			}
		}
		mon.noDuplicates(t)
	})
}

// If other sessions hold a key whenever this session locks it, the first Lock wastes a command. This command is a short
// acquire, which works only if the key is free. A later Lock wastes a short acquire only if the previous Lock repeated
// its request just when the key was granted.
func TestCostOfContendedKey(t *testing.T) {
	const n = 10
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		opt := idleOptions()
		opt.AlwaysListen = true
		session := r.session(opt, mon.client())
		warm(t, session, "warm")
		holder, store := r.session(idleOptions()).Mutex("contended"), r.store()
		contended := session.Mutex("contended")
		mon.reset()
		for range n {
			h := lock(t, holder)
			waits := locking(t.Context(), contended)
			eventually(t, "the waiter is queued", func() bool { return load(t, store, "contended").Waiting == 1 })
			release(t, h)
			release(t, granted(t, waits).h)
		}
		short := mon.commands(func(c command) bool { return c.id == "k/contended" && c.name == "update" && acquire(c.body) })
		if len(short) < 1 || len(short) > 3 {
			t.Errorf("%d short acquires for %d Locks of a key that another session held, want 1 to 3", len(short), n)
		}
		lab.Note(t, "%d commands for %d times Lock and Unlock of a key that another held", len(mon.commands(aboutKey)), n)
		mon.noDuplicates(t)
	})
}

func TestCostFailedTry(t *testing.T) {
	const n = 20
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		holder := warm(t, r.session(idleOptions()), "tried")
		mon := newMonitor(r.DB)
		tries := warm(t, r.session(idleOptions(), mon.client()), "tried")
		held := lock(t, holder)
		var log *oplog
		if s.Has(server.Need{Oplog: true}) {
			log = newOplog(t, r)
		}
		mon.reset()
		for range n {
			if _, err := tries.TryHold(t.Context()); sentinel(err) != "held" {
				t.Fatalf("TryHold: %v, want ErrHeld", err)
			}
		}
		onKeys, reads := mon.commands(aboutKey), mon.commands(func(c command) bool { return c.name == "find" || c.name == "aggregate" })
		if len(onKeys) != n {
			t.Errorf("%d commands on the key for %d failed tries, want %d: %v", len(onKeys), n, n, onKeys)
		}
		if len(reads) > 1 {
			t.Errorf("%d reads of the holder's session within a TTL, want at most 1: %v", len(reads), reads)
		}
		// Ignore listener commands and heartbeats: on a slow machine the session may have held a key so long that it
		// listens, or a heartbeat may be due.
		if all := mon.commands(func(c command) bool { return !aboutNotices(c) && !aboutSession(c) }); len(all) != len(onKeys)+len(reads) {
			t.Errorf("unexpected other commands: %v", all)
		}
		if log != nil {
			if w := log.writes(t, "k/"); w != 0 {
				t.Errorf("%d entries in the oplog for failed tries, want none", w)
			}
		}
		mon.noDuplicates(t)
		release(t, held)
	})
}

// Keeping many locks costs no more than keeping one: each heartbeat interval has one heartbeat and
// at most one read of held keys.
func TestCostOfManyLocks(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		many := 1_000
		if testkit.Long() && !s.FerretDB() { // on FerretDB each lock takes two writes of about 4 ms each
			many = 10_000
		}
		for _, n := range []int{1, many} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, s)
				mon := newMonitor(r.DB)
				var lost losses
				opt := dsync.Options{TTL: time.Minute, HeartbeatInterval: time.Second, Retention: -1, Hooks: lost.hooks()}
				session := r.session(opt, mon.client())
				began := time.Now()
				var all sync.WaitGroup
				keys := make(chan int)
				for range 16 {
					all.Go(func() {
						for k := range keys {
							if err := session.Mutex(fmt.Sprintf("many %d", k)).LockContext(t.Context()); err != nil {
								t.Errorf("lock %d: %v", k, err)
							}
						}
					})
				}
				for k := range n {
					keys <- k
				}
				close(keys)
				all.Wait()
				took := time.Since(began)

				var log *oplog
				if s.Has(server.Need{Oplog: true}) {
					log = newOplog(t, r)
				}
				mon.reset()
				const periods = 6
				heartbeat := func(c command) bool { return c.id == "s/"+session.ID() }
				read := func(c command) bool { return c.name == "aggregate" }
				began = time.Now()
				eventually(t, "the session has sent some heartbeats, and read what it holds", func() bool {
					return len(mon.commands(heartbeat)) >= periods && len(mon.commands(read)) > 0
				})
				sent := mon.commands(func(c command) bool { return !aboutNotices(c) })
				lasted := time.Since(began)
				beats, reads := 0, 0
				for _, c := range sent {
					switch {
					case heartbeat(c):
						beats++
					case read(c):
						reads++
					default:
						t.Errorf("a command other than heartbeats and their reads: %v", c)
					}
				}
				// On a busy machine the first heartbeat can be late, and the others still come when they are due.
				if most := int(lasted/(opt.HeartbeatInterval*9/10)) + 2; beats > most {
					t.Errorf("%d heartbeats in %v, want at most %d", beats, lasted, most)
				}
				if reads > beats+1 {
					t.Errorf("%d reads of held keys with %d heartbeats, want one with each", reads, beats)
				}
				// When a listener starts, it creates its collection if necessary, reads which other notice collections
				// exist, and waits until a majority has these collections. From then on, the server answers a getMore
				// every 5 s, and on a replica set the listener asks after each heartbeat which member is the primary. On a
				// router it opens a new cursor every 20 s.
				listens := mon.commands(aboutNotices)
				if begins, most := 8, beats+1+2*(int(lasted/(5*time.Second))+1); len(listens) > begins+most {
					t.Errorf("commands of a listener: %v, want at most %d, and %d when it starts", listens, most, begins)
				}
				if log != nil {
					if w := log.writes(t, ""); w < periods-1 || w > len(mon.commands(heartbeat))+1 {
						t.Errorf("%d document writes for %d heartbeats, want one each", w, beats)
					}
				}
				mon.noDuplicates(t)
				lost.none(t)
				lab.Note(t, "%d locks taken in %.1f s; then %d commands for %d heartbeats, and %d to listen for notices", n, took.Seconds(), len(sent), beats, len(listens))
			})
		}
	})
}

func TestCostOfWaiting(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Oplog: true, Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		holding := r.session(idleOptions())
		held := lock(t, warm(t, holding, "awaited"))
		opt := idleOptions()
		opt.PollInterval = 100 * time.Millisecond // the waiter polls often; no poll may write
		waiter := warm(t, r.session(opt), "other")
		_ = waiter
		mon := newMonitor(r.DB)
		m := r.session(opt, mon.client()).Mutex("awaited")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch := locking(ctx, m)
		store := r.store()
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "awaited").Waiting == 1 })
		time.Sleep(500 * time.Millisecond) // until it listens
		log := newOplog(t, r)
		mon.reset()
		time.Sleep(3 * time.Second)
		if w := log.writes(t, "k/"); w != 0 {
			t.Errorf("%d writes while waiting in the queue, want none", w)
		}
		asks := mon.commands(aboutKey)
		if len(asks) == 0 {
			t.Error("the waiter sent no request, so this test shows nothing")
		}
		mon.noDuplicates(t)
		release(t, held)
		release(t, granted(t, ch).h)
	})
}

// With 64 sessions in the queue, a release sends one command and one notice, and wakes one session. If the queue was
// empty when the key was granted, the holder's release sends two commands. The first command is cheaper, but works only
// while the queue is empty.
func TestCostOfReleaseWithAQueue(t *testing.T) {
	const line = 64
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		releasing, waiting := newMonitor(r.DB), newMonitor(r.DB)
		opt := idleOptions()
		opt.TTL = 5 * time.Minute // on a busy server, opening so many sessions can take longer than the usual heartbeat interval
		held := lock(t, warm(t, r.session(opt, releasing.client()), "line"))
		if !s.Has(server.Need{Notices: true}) {
			opt.PollInterval = 500 * time.Millisecond
		}
		client := r.Client(t, waiting.client(), options.Client().SetMaxPoolSize(2*line)) // each session listens on its own connection
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		grants := make(chan grant, line)
		for range line {
			m := r.open(client, opt).Mutex("line")
			go func() { grants <- <-locking(ctx, m) }()
		}
		store := r.store()
		eventually(t, "all are queued", func() bool { return load(t, store, "line").Waiting == line })
		eventually(t, "all have requested the key again after they began to listen", func() bool {
			waiting.reset()
			time.Sleep(time.Second)
			return len(waiting.commands(func(c command) bool { return !byItself(c) })) == 0 || !s.Has(server.Need{Notices: true})
		})

		releasing.reset()
		waiting.reset()
		begin := time.Now()
		release(t, held)
		g := granted(t, grants)
		took := g.at.Sub(begin)
		time.Sleep(time.Second)
		select {
		case g := <-grants:
			t.Errorf("another session was granted the key: token %d, %v", g.token, g.err)
		default:
		}
		if sent := releasing.commands(aboutKey); len(sent) > 2 {
			t.Errorf("%d commands for the release of a hold that was granted when nobody waited, want at most 2: %v", len(sent), sent)
		}
		left := line - 1
		if s.Has(server.Need{Notices: true}) {
			if sent := releasing.commands(notifies); len(sent) != 1 {
				t.Errorf("%d commands that notify, want 1: %v", len(sent), sent)
			}
			// Only the woken session may send a request. A session whose listener had to start again may request the key
			// twice more, because it may have missed a notice.
			wantFew := func(sent []command) {
				t.Helper()
				starts := len(waiting.commands(func(c command) bool { return onNotices(c) && c.name == "find" }))
				if len(sent) > 1+2*starts {
					t.Errorf("the waiters sent %d commands, want at most 1, and 2 for each of %d starts of a listener: %v", len(sent), starts, sent)
				}
			}
			wantFew(waiting.commands(func(c command) bool { return !byItself(c) }))
			waiting.reset()
			release(t, g.h)
			g = granted(t, grants)
			left--
			time.Sleep(time.Second)
			isRelease := func(c command) bool { return c.id == "k/line" && !acquire(c.body) }
			if sent := waiting.commands(isRelease); len(sent) != 1 {
				t.Errorf("%d commands for the release of a hold that was granted while others waited, want 1: %v", len(sent), sent)
			}
			wantFew(waiting.commands(func(c command) bool { return !byItself(c) && !isRelease(c) && !notifies(c) }))
		}
		if st := load(t, store, "line"); st.Waiting != left || len(st.Holders) != 1 {
			t.Errorf("%d in the queue and %d holders, want %d and 1", st.Waiting, len(st.Holders), left)
		}
		lab.Note(t, "granted %v after the call of Release, %d in the queue", took.Round(100*time.Microsecond), line-1)
		release(t, g.h)
		cancel()
		for range left {
			if g := <-grants; g.err == nil {
				g.h.Release(t.Context())
			}
		}
	})
}

// B11: no reply to a waiter carries a duplicate-key error.
func TestB11NoDuplicateKeys(t *testing.T) {
	t.Parallel()
	const waiters = 10
	wait := 8 * time.Second
	if testkit.Long() {
		wait = time.Minute // as B11 requires
	}
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(30 * time.Second) // a container can stall on a busy machine, but not for that long
		held := lock(t, warm(t, r.session(opt), "noise"))
		mon := newMonitor(r.DB)
		client := r.Client(t, mon.client())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		grants := make(chan grant, waiters)
		for range waiters {
			m := r.open(client, opt).Mutex("noise")
			go func() {
				g := <-locking(ctx, m)
				if g.err == nil {
					g.err = g.h.Release(t.Context())
				}
				grants <- g
			}()
		}
		tries := r.open(client, opt).Mutex("noise")
		for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if tries.TryLock() {
				t.Fatal("TryLock of a held key succeeded")
			}
		}
		release(t, held)
		for range waiters {
			granted(t, grants)
		}
		if len(mon.commands(aboutKey)) < waiters {
			t.Error("the monitor saw no commands, so this test shows nothing")
		}
		mon.noDuplicates(t)
		lab.Note(t, "%d replies in %v", len(mon.commands(nil)), wait)
	})
}
