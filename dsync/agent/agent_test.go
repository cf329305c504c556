package agent_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/agent"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A lock is held for as long as its response is open, however long that is, and free when the client has closed it.
func TestLockIsAnOpenResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/locks/invoices")
		if held := testkit.Holders(t, w.memory, "invoices"); len(held) != 1 || held[0].Token != l.Token || l.Held != "invoices" {
			t.Errorf("the line is %+v, the store has %+v", l, held)
		}
		time.Sleep(10 * ttl)
		r.wantOpen()
		if want := int(10 * ttl / beat); r.signs() < want-1 || r.signs() > want {
			t.Errorf("%d signs of life in ten TTLs, want %d", r.signs(), want)
		}
		if w.other.Mutex("invoices").TryLock() {
			t.Error("a program in Go has locked the key, too")
		}
		next := w.wait("/v1/locks/invoices?wait=1m")
		r.close()
		if after := next.next(); after.Token <= l.Token {
			t.Errorf("the next token is %d, want more than %d", after.Token, l.Token)
		}
		next.close()
		testkit.WantFree(t, w.memory, "invoices")
	})
}

// A client that goes while it waits leaves the queue, in its agent and in the store.
func TestWaiterThatGoesLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		mu := w.other.Mutex("k")
		mu.Lock()
		first, second := w.wait("/v1/locks/k"), w.wait("/v1/locks/k")
		if n := testkit.QueueLength(t, w.memory, "k"); n != 1 {
			t.Fatalf("%d waiters in the store, want the agent's first", n)
		}
		first.close()
		second.wantOpen()
		second.close()
		if n := testkit.QueueLength(t, w.memory, "k"); n != 0 {
			t.Errorf("%d waiters in the store after both have gone", n)
		}
		mu.Unlock()
		testkit.WantFree(t, w.memory, "k")
	})
}

// A try, and a wait that is over, get 409 with the holder's name, and leave nothing behind.
func TestHeldByOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		mu := w.other.Mutex("k")
		mu.Lock()
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			r := w.get(fmt.Sprintf("/v1/locks/k?wait=%v", wait))
			time.Sleep(wait)
			if l := r.next(); r.status != 409 || l.Holder == nil || l.Holder.Name != "other" || !strings.Contains(l.Error, `"k" is held by other`) {
				t.Errorf("with wait=%v: status %d, %+v", wait, r.status, l)
			}
			r.wantEnd()
			if n := testkit.QueueLength(t, w.memory, "k"); n != 0 {
				t.Errorf("with wait=%v: %d waiters are left", wait, n)
			}
		}
		mu.Unlock()
		r, _ := w.hold("/v1/locks/k?wait=0s")
		if l := w.get("/v1/locks/k?wait=0s").next(); l.Holder == nil || l.Holder.Name != "agent" {
			t.Errorf("a client of the same agent gets %+v", l)
		}
		r.close()
	})
}

// If the store does not answer, a request whose wait is over says so, and not that others hold the key.
func TestStoreDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.faulty.Cut()
		r := w.get("/v1/locks/k?wait=3s")
		time.Sleep(ttl)
		if l := r.next(); r.status != 504 || l.Error == "" {
			t.Errorf("status %d, %+v, want 504", r.status, l)
		}
		w.faulty.Heal()
	})
}

// When the agent can't renew its session, its client is told a grace before anybody else can hold the key, and the
// response ends with that line.
func TestLostIsSentInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/locks/k")
		time.Sleep(ttl / 2)
		w.faulty.Cut()
		mu := w.other.Mutex("k")
		var next atomic.Int64
		go func() {
			mu.Lock()
			next.Store(time.Now().UnixNano())
		}()
		got, lost := r.later(), time.Now()
		if !strings.Contains(got.Lost, "no heartbeat was acknowledged") || got.Grace != l.Grace {
			t.Errorf("the line is %+v, want lost, because the session was not renewed", got)
		}
		r.wantEnd()
		if next.Load() != 0 {
			t.Fatal("another had the lock before the client was told")
		}
		time.Sleep(2 * ttl)
		if after := time.Unix(0, next.Load()).Sub(lost); after < grace || next.Load() == 0 {
			t.Errorf("another had the lock %v after the client was told, want at least the grace, %v", after, grace)
		}
		w.faulty.Heal()
		mu.Unlock()
	})
}

// When somebody breaks a lock, its client is told, and has the grace to stop, or until it says that it has.
func TestBrokenLock(t *testing.T) {
	for _, done := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, nil)
			r, l := w.hold("/v1/locks/k")
			broken := make(chan error, 1)
			go func() { broken <- admin.New(w.other).Break(background, "k") }()
			if got := r.later(); !strings.Contains(got.Lost, dsync.ErrRevoked.Error()) {
				t.Errorf("the line is %+v, want lost, because it was revoked", got)
			}
			r.wantEnd()
			if done {
				w.done(l, "", http.StatusGone)
			} else {
				time.Sleep(grace - 20*time.Millisecond)
				if len(testkit.Holders(t, w.memory, "k")) != 1 {
					t.Error("the key is free although the client may still be at work")
				}
				time.Sleep(40 * time.Millisecond)
			}
			testkit.WantFree(t, w.memory, "k")
			if err := <-broken; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * grace)
			if err := w.s.Healthy(); err != nil {
				t.Errorf("the agent is unhealthy: %v", err)
			}
		})
	}
}

// done releases a lock and answers when it is free. Its response ends without another line.
func TestDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/locks/k")
		w.done(l, "a result", http.StatusBadRequest)
		r.wantOpen()
		w.done(l, "", http.StatusNoContent)
		testkit.WantFree(t, w.memory, "k")
		r.wantEnd()
		w.done(l, "", http.StatusNotFound)
	})
}

// Keys of each kind are those of programs in Go.
func TestKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		rw := w.other.RWMutex("rw")
		rw.RLock()
		first, _ := w.hold("/v1/locks/rw?mode=shared")
		second, _ := w.hold("/v1/locks/rw?mode=shared&limit=1m")
		writer := w.wait("/v1/locks/rw?mode=exclusive")
		rw.RUnlock()
		first.close()
		writer.wantOpen()
		second.close()
		writer.next()
		if rw.TryRLock() {
			t.Error("a reader beside the writer")
		}
		writer.close()

		slots := w.other.Semaphore("slots", 3)
		h := testkit.Units(t, slots, 1)
		two, _ := w.hold("/v1/locks/slots?of=3&n=2")
		one := w.wait("/v1/locks/slots?of=3")
		h.Release(background)
		one.next()
		two.close()
		if l := w.get("/v1/locks/slots").next(); !strings.Contains(l.Error, "is in use with kind") {
			t.Errorf("a semaphore's key as a mutex: %+v", l)
		}
		one.close()
		slash, l := w.hold("/v1/locks/a%2Fb%20c%2F%2Fd")
		if l.Held != "a/b c//d" {
			t.Errorf("the key is %q", l.Held)
		}
		slash.close()
	})
}

// Many clients and programs in Go take turns with one key.
func TestNoTwoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var inside, turns atomic.Int64
		turn := func() {
			if inside.Add(1) != 1 {
				t.Error("two hold the key")
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			turns.Add(1)
		}
		const each = 20
		var ends []chan struct{}
		start := func(f func()) {
			end := make(chan struct{})
			ends = append(ends, end)
			go func() {
				defer close(end)
				for range each {
					f()
				}
			}()
		}
		for range 4 {
			start(func() {
				answer, err := w.client.Get("http://localhost/v1/locks/k")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := answer.Body.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				turn()
				answer.Body.Close()
			})
			start(func() {
				mu := w.other.Mutex("k")
				mu.Lock()
				turn()
				mu.Unlock()
			})
		}
		for _, end := range ends {
			<-end
		}
		synctest.Wait()
		if turns.Load() != 8*each {
			t.Errorf("%d turns, want %d", turns.Load(), 8*each)
		}
		testkit.WantFree(t, w.memory, "k")
	})
}

// A client that has set a limit loses its lock unless it renews the limit, and only that lock.
func TestProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		hangs, _ := w.hold("/v1/locks/hangs?limit=30s")
		works, l := w.hold("/v1/locks/works?limit=30s")
		for range 4 {
			time.Sleep(20 * time.Second)
			if status, err := w.post("/v1/holds/"+l.ID+"/progress?limit=30s", ""); status != 204 {
				t.Errorf("progress: %d %s", status, err)
			}
		}
		works.wantOpen()
		if got := hangs.next(); !strings.Contains(got.Lost, dsync.ErrStalled.Error()) {
			t.Errorf("the line is %+v, want lost, because it stalled", got)
		}
		hangs.wantEnd()
		testkit.WantFree(t, w.memory, "hangs")
		works.close()
		if status, _ := w.post("/v1/holds/"+l.ID+"/progress?limit=30s", ""); status != 404 {
			t.Errorf("progress of a hold that is over: %d, want 404", status)
		}
	})
}

// rawLock sends a request for a lock over a connection of its own, and reads until the lock is held.
func (w *world) rawLock(key string) net.Conn {
	w.t.Helper()
	c, err := w.pipes.dial(background, "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	go fmt.Fprintf(c, "GET /v1/locks/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", key)
	if _, err := io.ReadAtLeast(c, make([]byte, 4096), 200); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	if len(testkit.Holders(w.t, w.memory, key)) != 1 {
		w.t.Fatal("the key is not held")
	}
	return c
}

// However long the TTL is, a client may rely on its lock for at most 30 s without a sign of life, so that it gives up
// before TCP does.
func TestLeftIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldOf(t, &dsync.Options{TTL: time.Hour}, nil)
		r := w.get("/v1/locks/k")
		if l := r.next(); l.Left == nil || *l.Left != 30_000 {
			t.Errorf("the first line is %+v", l)
		}
		time.Sleep(time.Minute)
		if r.wantOpen(); r.signs() < 11 || *r.last.Left != 30_000 {
			t.Errorf("%d signs of life in a minute, the last with %v ms", r.signs(), *r.last.Left)
		}
		r.close()
	})
}

// A line says when it was written, so that a client that was frozen with its agent sees how old it is.
func TestLinesHaveATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		r, l := w.hold("/v1/locks/k")
		begin := time.Now()
		time.Sleep(2*beat + beat/2)
		if r.signs(); l.Unix != begin.UnixMilli() || r.last.Unix != begin.Add(2*beat).UnixMilli() {
			t.Errorf("a hold of %v has the times %d and %d", begin.UnixMilli(), l.Unix, r.last.Unix)
		}
		r.close()
	})
}

// A client that does not read delays nobody, and loses its lock: after its grace, because it may still be at work.
func TestSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.rawLock("slow").Close()
		quick, _ := w.hold("/v1/locks/quick")
		time.Sleep(2*beat + grace/2)
		if len(testkit.Holders(t, w.memory, "slow")) != 1 {
			t.Error("the key is free before the grace is over")
		}
		time.Sleep(grace)
		testkit.WantFree(t, w.memory, "slow")
		if quick.signs() < 2 {
			t.Errorf("another client had %d signs of life, want 2", quick.signs())
		}
		quick.close()
	})
}

// The server does not see that a client has gone if the client has sent more than its request. The next sign of life
// does.
func TestClientThatHasSentMoreGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		c := w.rawLock("k")
		if _, err := io.WriteString(c, "G"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		time.Sleep(beat + time.Millisecond)
		testkit.WantFree(t, w.memory, "k")
	})
}

// When the agent's session is closed, clients are told and have their grace; waiters and new requests get 503.
func TestAgentEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		works, _ := w.hold("/v1/locks/works")
		stops, l := w.hold("/v1/locks/stops")
		waits := w.wait("/v1/locks/works")
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- w.s.Close(background) }()
		for _, r := range []*response{works, stops} {
			if got := r.next(); !strings.Contains(got.Lost, dsync.ErrClosed.Error()) {
				t.Errorf("the line is %+v, want lost, because the session is closed", got)
			}
			r.wantEnd()
		}
		if got := waits.next(); waits.status != 503 || got.Error == "" {
			t.Errorf("a waiter gets status %d, %+v", waits.status, got)
		}
		w.done(l, "", http.StatusServiceUnavailable)
		testkit.WantFree(t, w.memory, "stops")
		if len(testkit.Holders(t, w.memory, "works")) != 1 {
			t.Error("the other key is free before the grace is over")
		}
		if err := <-closed; err != nil || time.Since(began) < grace {
			t.Errorf("Close took %v, want the grace: %v", time.Since(began), err)
		}
		testkit.WantFree(t, w.memory, "works")
		for _, path := range []string{"/v1/locks/k", "/v1/elections/e", "/v1/elections/e/leader", "/v1/status/k", "/v1/health"} {
			if r := w.get(path); r.status != 503 {
				t.Errorf("GET %s after the end: status %d, %+v", path, r.status, r.next())
			}
		}
	})
}

// When the agent dies, all responses break off at once, and nobody holds a key before the TTL of the agent's session is
// over.
func TestAgentDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		first, _ := w.hold("/v1/locks/first")
		second, _ := w.hold("/v1/elections/second")
		time.Sleep(ttl / 2)
		member, _, err := storecmd.Members(background, w.memory, w.s.ID())
		noErr(t, err)
		w.faulty.Cut() // nothing of a dead process reaches the store
		w.server.Close()
		first.wantEnd()
		second.wantEnd()
		noErr(t, w.other.Mutex("first").LockContext(background))
		if since := time.Since(member[0].LastHeartbeat); since < ttl {
			t.Errorf("another holds the key %v after the last heartbeat, want at least the TTL, %v", since, ttl)
		}
	})
}

// No more responses are open than the options allow.
func TestMaxOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &agent.Options{MaxOpen: 2})
		first, _ := w.hold("/v1/locks/k")
		second := w.wait("/v1/locks/k")
		if r := w.get("/v1/locks/other"); r.status != 503 || !strings.Contains(r.next().Error, "2 requests are open") {
			t.Errorf("a third request: status %d", r.status)
		}
		if r := w.get("/v1/health"); r.status != 200 {
			t.Errorf("health: %d", r.status)
		}
		first.close()
		second.next()
		third, _ := w.hold("/v1/locks/other")
		second.close()
		third.close()
	})
}

// Requests that can't be right are refused with what would be right, and nothing reaches the store.
func TestRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := documented(t, agent.New(newSession(t, store, nil), nil))
		before := store.Counts()
		for _, test := range []struct {
			request string
			status  int
			want    string
		}{
			{"HEAD /v1/locks/k", 405, ""},
			{"POST /v1/locks/k", 405, "takes only GET"},
			{"GET /v1/holds/x/done", 405, "takes only POST"},
			{"GET /v1/locks/", 400, "percent-encode the key"},
			{"GET /v1/locks/a//b", 400, "percent-encode the key"},
			{"GET /v1/locks/a/../b", 400, "percent-encode the key"},
			{"GET /v1/locks/a/b", 404, "write / in keys as %2F"},
			{"GET /v2/locks/k", 404, "see /v1/openapi.json"},
			{"GET /v1/locks/" + strings.Repeat("k", 513), 400, "at most 512"},
			{"GET /v1/locks/%00", 400, "NUL"},
			{"GET /v1/locks/%ff", 400, "UTF-8"},
			{"GET /v1/locks/k?wait=30", 400, "a duration such as 30s"},
			{"GET /v1/locks/k?wait=-1s", 400, "a duration such as 30s"},
			{"GET /v1/locks/k?Wait=1s", 400, "there are: wait, limit, mode, of, n"},
			{"GET /v1/locks/k?wait=1s&wait=2s", 400, "give it once"},
			{"GET /v1/locks/k?wait=%zz", 400, "can't be read"},
			{"GET /v1/locks/k?limit=0s", 400, "such as 1m"},
			{"GET /v1/locks/k?mode=read", 400, "shared or exclusive"},
			{"GET /v1/locks/k?of=0", 400, "at least 1"},
			{"GET /v1/locks/k?of=3&n=4", 400, "more than the semaphore's size"},
			{"GET /v1/locks/k?n=2", 400, "of is missing"},
			{"GET /v1/locks/k?of=2&mode=shared", 400, "choose one"},
			{"GET /v1/once/k?tick=2026-11-01T02:00:00Z", 400, "there are: wait, limit"},
			{"GET /v1/periodic/k", 400, "tick is missing"},
			{"GET /v1/periodic/k?tick=2h", 400, "such as 2026-11-01T02:00:00Z"},
			{"GET /v1/periodic/k?tick=2026-11-01T02:00:00.0001Z", 400, "whole number of milliseconds"},
			{"GET /v1/elections/e?value=" + strings.Repeat("v", 257), 400, "at most 256"},
			{"GET /v1/elections/e?wait=1s", 400, "there are: value, preference, limit"},
			{"GET /v1/elections/e?preference=high", 400, "it must be a whole number"},
			{"GET /v1/elections/e?preference=1000000", 400, "it must be between -999999 and 999999"},
			{"POST /v1/holds/x/done", 404, "no such hold"},
			{"POST /v1/holds/x/progress?limit=1m", 404, "no such hold"},
		} {
			method, url, _ := strings.Cut(test.request, " ")
			r := httptest.NewRequest(method, "http://localhost"+url, nil)
			status, err := serve(h, r, nil)
			if status != test.status || !strings.Contains(err, test.want) {
				t.Errorf("%s: status %d, %s; want %d and %q", test.request, status, err, test.status, test.want)
			}
		}
		r := httptest.NewRequest("GET", "http://localhost/v1/locks/k", strings.NewReader("body"))
		if status, err := serve(h, r, nil); status != 400 || !strings.Contains(err, "has a body") {
			t.Errorf("GET with a body: status %d, %s", status, err)
		}
		if n := store.Counts().Since(before).Total(); n != 0 {
			t.Errorf("%d commands reached the store", n)
		}
	})
}

// Without a token only this machine's programs may use an agent, with one only those who have it, and browsers never.
func TestWhoMay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		open, secret := agent.New(s, nil), agent.New(s, &agent.Options{Token: "secret"})
		tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip)} }
		unix := &net.UnixAddr{Name: "/run/agent.sock", Net: "unix"}
		for _, test := range []struct {
			what   string
			h      http.Handler
			at     net.Addr
			host   string
			header string
			status int
		}{
			{"localhost", open, tcp("127.0.0.1"), "localhost:7474", "", 200},
			{"its address", open, tcp("::1"), "[::1]:7474", "", 200},
			{"a foreign name for this machine", open, tcp("127.0.0.1"), "evil.example", "", 421},
			{"a name that looks like this machine's", open, tcp("127.0.0.1"), "127.0.0.1.evil.example", "", 421},
			{"another machine", open, tcp("10.0.0.1"), "localhost", "", 403},
			{"a Unix socket", open, unix, "anything", "", 200},
			{"a page", open, tcp("127.0.0.1"), "localhost", "Origin: http://localhost", 403},
			{"a page's image", open, tcp("127.0.0.1"), "localhost", "Sec-Fetch-Site: cross-site", 403},
			{"an address that was typed", open, tcp("127.0.0.1"), "localhost", "Sec-Fetch-Site: none", 403},
			{"an image in Safari 16.3", open, tcp("127.0.0.1"), "localhost", "User-Agent: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)", 403},
			{"a program with a name", open, tcp("127.0.0.1"), "localhost", "User-Agent: curl/8.5.0", 200},
			{"a proxy on this machine", open, tcp("127.0.0.1"), "localhost", "X-Forwarded-For: 10.0.0.1", 403},
			{"a proxy with the token", secret, tcp("127.0.0.1"), "localhost", "X-Forwarded-For: 10.0.0.1\nAuthorization: Bearer secret", 200},
			{"a page over a Unix socket", open, unix, "localhost", "Origin: null", 403},
			{"no token", secret, tcp("10.0.0.1"), "agent", "", 401},
			{"no token on this machine", secret, tcp("127.0.0.1"), "localhost", "", 401},
			{"the token", secret, tcp("10.0.0.1"), "agent", "Authorization: Bearer secret", 200},
			{"a longer one", secret, tcp("10.0.0.1"), "agent", "Authorization: Bearer secrets", 401},
			{"a part of it", secret, tcp("10.0.0.1"), "agent", "Authorization: Bearer secre", 401},
			{"an empty one", secret, tcp("10.0.0.1"), "agent", "Authorization: Bearer ", 401},
			{"another scheme", secret, tcp("10.0.0.1"), "agent", "Authorization: Basic secret", 401},
			{"a page with the token", secret, tcp("10.0.0.1"), "agent", "Origin: http://agent\nAuthorization: Bearer secret", 403},
		} {
			r := httptest.NewRequest("GET", "http://"+test.host+"/v1/health", nil)
			for _, h := range strings.Split(test.header, "\n") {
				if name, value, ok := strings.Cut(h, ": "); ok {
					r.Header.Set(name, value)
				}
			}
			if status, err := serve(test.h, r, test.at); status != test.status {
				t.Errorf("%s: status %d (%s), want %d", test.what, status, err, test.status)
			}
		}
	})
}

// A HostDir would free the keys of a dead agent before its clients have had their grace.
func TestNewRefusesAHostDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("HostDir is for Linux only")
	}
	s := newSession(t, dsynctest.NewMemory(), &dsync.Options{HostDir: t.TempDir()})
	defer func() {
		if recover() == nil {
			t.Error("New accepts the session")
		}
	}()
	agent.New(s, nil)
}

// The OpenAPI description has the routes of the handler, with their parameters, and is served.
func TestOpenAPI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := readOpenAPI(t)
		h := agent.New(newSession(t, dsynctest.NewMemory(), nil), nil)
		operations := 0
		for _, route := range h.Routes() {
			method, path, want := strings.ToLower(route[0]), route[1], route[2]
			operations++
			o := d.operation(t, path, method)
			var got []string
			for _, p := range o.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = d.Components.Parameters[name]
				}
				if p.In != "query" || p.Name == "" {
					t.Errorf("%s: parameter %+v", path, p)
				}
				got = append(got, p.Name)
			}
			if !sameWords(got, strings.Fields(want)) {
				t.Errorf("%s %s takes %v, openapi.json has %v", method, path, want, got)
			}
			for status, r := range o.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok && d.Components.Responses[name].Description == "" {
					t.Errorf("%s: response %s has no description", path, status)
				}
			}
		}
		described := 0
		for _, methods := range d.Paths {
			for method := range methods {
				if method != "parameters" {
					described++
				}
			}
		}
		if described != operations {
			t.Errorf("openapi.json has %d operations, the handler %d", described, operations)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/openapi.json", nil))
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"openapi": "3.0.3"`) {
			t.Errorf("status %d: %.50s", w.Code, w.Body)
		}
	})
}

func sameWords(a, b []string) bool {
	count := make(map[string]int)
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
