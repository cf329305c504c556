package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// L1, L9: For a key of each kind, Status shows who holds it, on which host, in which process, since
// when and until when.
func TestStatusOfEachKind(t *testing.T) {
	const wait = 4 * time.Second // between the grant and the reading; one heartbeat is sent meanwhile
	type use struct {
		limit   int64
		held    bool
		sealed  bool
		value   string
		term    int64
		holders []admin.Participant // only Weight, Renewed and Yields are set and, if Renewed is false, Until, counted from the grant
	}
	renewed := func(weight int64) admin.Participant { return admin.Participant{Weight: weight, Renewed: true} }
	const rw = 1 << 30 // the limit of an RWMutex
	for _, test := range []struct {
		name string
		kind driver.Kind
		use  func(t *testing.T, s *dsync.Session)
		want use
	}{
		{"mutex", driver.KindMutex, func(t *testing.T, s *dsync.Session) {
			lock(t, s.Mutex("k"))
		}, use{limit: 1, held: true, holders: []admin.Participant{renewed(1)}}},
		{"mutex unlocked", driver.KindMutex, func(t *testing.T, s *dsync.Session) {
			turn(s.Mutex("k"))
		}, use{limit: 1}},
		{"mutex unlocked after", driver.KindMutex, func(t *testing.T, s *dsync.Session) {
			h, err := s.Mutex("k").Hold(background)
			noErr(t, err)
			noErr(t, h.ReleaseAfter(background, time.Minute))
		}, use{limit: 1, held: true, holders: []admin.Participant{{Weight: 1, Until: time.Time{}.Add(time.Minute)}}}},
		{"lease", driver.KindMutex, func(t *testing.T, s *dsync.Session) {
			if _, err := s.Mutex("k").Lease(background, time.Minute); err != nil {
				t.Fatal(err)
			}
		}, use{limit: 1, held: true, holders: []admin.Participant{{Weight: 1, Until: time.Time{}.Add(time.Minute)}}}},
		{"writer", driver.KindRWMutex, func(t *testing.T, s *dsync.Session) {
			s.RWMutex("k").Lock()
		}, use{limit: rw, held: true, holders: []admin.Participant{renewed(rw)}}},
		{"reader", driver.KindRWMutex, func(t *testing.T, s *dsync.Session) {
			s.RWMutex("k").RLock()
		}, use{limit: rw, held: true, holders: []admin.Participant{{Weight: 1, Renewed: true, Yields: true}}}},
		{"semaphore", driver.KindSemaphore, func(t *testing.T, s *dsync.Session) {
			noErr(t, errors.Join(s.Semaphore("k", 5).Acquire(background, 3), s.Semaphore("k", 5).Acquire(background, 1)))
		}, use{limit: 5, held: true, holders: []admin.Participant{renewed(3), renewed(1)}}},
		{"once that is done", driver.KindOnce, func(t *testing.T, s *dsync.Session) {
			_, err := s.Once("k").DoValue(background, func(context.Context) ([]byte, error) { return []byte("result"), nil })
			noErr(t, err)
		}, use{limit: 1, sealed: true, value: "result"}},
		{"once that failed", driver.KindOnce, func(t *testing.T, s *dsync.Session) {
			s.Once("k").Do(background, func(context.Context) error { return errors.New("fails") })
		}, use{limit: 1}},
		{"election", driver.KindElection, func(t *testing.T, s *dsync.Session) {
			for range 2 {
				h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
				noErr(t, err)
				h.Release(background)
			}
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			noErr(t, h.Publish(background, []byte("address")))
		}, use{limit: 1, held: true, value: "address", term: 3, holders: []admin.Participant{renewed(1)}}},
		{"lingers", driver.KindMutex, func(t *testing.T, s *dsync.Session) {
			turn(s.Mutex("k"))
			synctest.Wait() // the session releases its first claim, because others may have joined the queue before the session listened
			turn(s.Mutex("k"))
		}, use{limit: 1, held: true, holders: []admin.Participant{{Weight: 1, Renewed: true, Yields: true}}}},
		{"never used", "", func(*testing.T, *dsync.Session) {}, use{}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Skew(3 * time.Hour) // all times are by the store's clock
			opt := &dsync.Options{Name: "pod-1", Host: "a.example", App: "v1", Meta: map[string]string{"zone": "x"}}
			if test.name == "lingers" {
				opt.Linger = time.Minute
			}
			s := newSession(t, store, opt)
			began := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
			test.use(t, s)
			id := s.ID()
			time.Sleep(wait)

			got := status(t, newSession(t, store, nil), "k")
			var m driver.Member
			if id != "" {
				all, _, err := storecmd.Members(background, store, id)
				if err != nil || len(all) != 1 {
					t.Fatalf("Members: %v, %v", all, err)
				}
				m = all[0]
			}
			if test.kind != "" && !m.LastHeartbeat.After(began) {
				t.Fatal("no heartbeat was sent between the grant and the reading")
			}
			want := admin.Status{
				Key: "k", Now: began.Add(wait), Kind: test.kind, Limit: test.want.limit, Term: test.want.term,
				Sealed: test.want.sealed, Token: got.Token,
			}
			if test.want.value != "" {
				want.Value = []byte(test.want.value)
			}
			for i, o := range test.want.holders {
				if len(got.Holders) > i {
					o.Claim, o.Token = got.Holders[i].Claim, got.Holders[i].Token
					if o.Token <= 0 || !strings.HasPrefix(o.Claim, id+".") {
						t.Errorf("holder %d has token %d and claim %q of session %q", i, o.Token, o.Claim, id)
					}
				}
				o.Session, o.Name, o.Host, o.PID, o.App, o.Meta = id, "pod-1", "a.example", os.Getpid(), "v1", map[string]string{"zone": "x"}
				o.Seen, o.TTL, o.Since = m.LastHeartbeat, ttl, began
				if o.Renewed {
					o.Until = m.LastHeartbeat.Add(ttl)
				} else {
					o.Until = began.Add(o.Until.Sub(time.Time{}))
				}
				want.Holders = append(want.Holders, o)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Status is\n%+v\nwant\n%+v", got, want)
			}
			if (got.Token > 0) != (test.kind != "") {
				t.Errorf("the last token is %d", got.Token)
			}
			if got.Held() != test.want.held {
				t.Errorf("the key is held: %t, want %t", got.Held(), test.want.held)
			}
		})
	}
}

// Waiters are shown in the order of the queue, with their processes. Holders are shown in the order
// of their grants, even if one process has several holds.
func TestStatusShowsTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		host := func(name string) *dsync.Session { return newSession(t, store, &dsync.Options{Host: name}) }
		ctx, cancel := context.WithCancel(background)
		var want []string
		for i := range 3 {
			name := fmt.Sprint("reader-", 2-i)
			host(name).RWMutex("k").RLock()
			want = append(want, name)
		}
		var waiting []<-chan error
		for i := range 20 {
			name := fmt.Sprint("waiter-", 20-i)
			rw := host(name).RWMutex("k")
			locked := rw.LockContext
			if i%2 == 1 {
				locked = func(ctx context.Context) error {
					_, err := rw.RHold(ctx)
					return err
				}
			}
			waiting = append(waiting, waitAt(t, store, "k", i+1, locked, ctx))
			want = append(want, name)
		}
		s := newSession(t, store, nil)
		st := status(t, s, "k")
		var got []string
		for _, o := range st.Holders {
			got = append(got, o.Host)
		}
		for i, o := range st.Queue {
			got = append(got, o.Host)
			if w := []int64{1 << 30, 1}[i%2]; o.Weight != w || o.PID != os.Getpid() || o.TTL != ttl || !strings.HasPrefix(o.Claim, o.Session+".") {
				t.Errorf("the waiter at position %d is %+v", i+1, o)
			}
			if o.Token != 0 || !o.Since.IsZero() || !o.Until.IsZero() || o.Lapsed {
				t.Errorf("the waiter at position %d is shown as a holder: %+v", i+1, o)
			}
		}
		if !slices.Equal(got, want) || st.Waiting != 20 {
			t.Errorf("%d waiters; the holders and the queue are\n%q, want\n%q", st.Waiting, got, want)
		}
		for st, err := range admin.New(s).List(background, "") {
			if err != nil || st.Waiting != 20 || len(st.Queue) != 8 || st.Queue[7].Host != "waiter-13" {
				t.Errorf("List has %d waiting, %d in the queue: %v", st.Waiting, len(st.Queue), err)
			}
		}
		text := st.String()
		for _, part := range []string{
			", reads, token", "20 waiting",
			fmt.Sprintf("waiting, position 1: process %d on waiter-20, writes\n", os.Getpid()),
			fmt.Sprintf("waiting, position 20: process %d on waiter-1, reads\n", os.Getpid()),
		} {
			if !strings.Contains(text, part) {
				t.Errorf("the status lacks %q:\n%s", part, text)
			}
		}
		cancel()
		for _, w := range waiting {
			wantErr(t, "a wait", <-w, context.Canceled)
		}
	})
}

// L8: a program can tell whether a key is locked, whether its own Mutex holds the key, and who the
// holder is. The key is free, or held by this session, or held by another session, or it has a
// holder that has lapsed but has not been dropped yet.
func TestLockedOwnedAndHolder(t *testing.T) {
	type want struct {
		owned, locked bool // owned: mu has a token; locked: the status says that the key is held
		holder        string
		lapsed        bool
	}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, mu *dsync.Mutex, here, there *dsync.Session, cut func())
		want want
	}{
		{"never used", func(*testing.T, *dsync.Mutex, *dsync.Session, *dsync.Session, func()) {}, want{}},
		{"free", func(_ *testing.T, mu *dsync.Mutex, _, there *dsync.Session, _ func()) {
			turn(mu)
			turn(there.Mutex("k"))
		}, want{}},
		{"mine", func(t *testing.T, mu *dsync.Mutex, _, _ *dsync.Session, _ func()) {
			lock(t, mu)
			time.Sleep(3 * ttl)
		}, want{owned: true, locked: true, holder: "here"}},
		{"of another Mutex here", func(t *testing.T, _ *dsync.Mutex, here, _ *dsync.Session, _ func()) {
			lock(t, here.Mutex("k"))
		}, want{locked: true, holder: "here"}},
		{"another's", func(t *testing.T, _ *dsync.Mutex, _, there *dsync.Session, _ func()) {
			lock(t, there.Mutex("k"))
			time.Sleep(3 * ttl)
		}, want{locked: true, holder: "there"}},
		{"another's, about to lapse", func(t *testing.T, _ *dsync.Mutex, _, there *dsync.Session, cut func()) {
			lock(t, there.Mutex("k"))
			cut()
			time.Sleep(ttl - time.Millisecond)
		}, want{locked: true, holder: "there"}},
		{"lapsed, not expired", func(t *testing.T, _ *dsync.Mutex, _, there *dsync.Session, cut func()) {
			lock(t, there.Mutex("k"))
			cut()
			time.Sleep(ttl)
		}, want{holder: "there", lapsed: true}},
		{"expired, not dropped", func(t *testing.T, _ *dsync.Mutex, here, there *dsync.Session, cut func()) {
			lock(t, there.Mutex("k"))
			lock(t, there.Mutex("other"))
			cut()
			lock(t, here.Mutex("other"))
		}, want{holder: "there", lapsed: true}},
		{"mine, lost", func(t *testing.T, mu *dsync.Mutex, here, _ *dsync.Session, cut func()) {
			lock(t, mu)
			cut()
			<-mu.Lost()
		}, want{locked: true, holder: "here"}}, // other sessions see it as held until it lapses
		{"a lease", func(t *testing.T, _ *dsync.Mutex, _, there *dsync.Session, _ func()) {
			if _, err := there.Mutex("k").Lease(background, time.Minute); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute - time.Millisecond)
		}, want{locked: true, holder: "there"}},
		{"a lease that is over, as planned", func(t *testing.T, _ *dsync.Mutex, _, there *dsync.Session, _ func()) {
			if _, err := there.Mutex("k").Lease(background, time.Minute); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}, want{}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			faulty := newFaulty(t, store, nil)
			asks := newSession(t, store, &dsync.Options{Host: "asks"})
			here := newSession(t, faulty, &dsync.Options{Host: "here"})
			there := newSession(t, faulty, &dsync.Options{Host: "there"})
			if test.name == "expired, not dropped" {
				here = asks
			}
			mu := here.Mutex("k")
			test.do(t, mu, here, there, faulty.Cut)

			if mu.Token() != 0 != test.want.owned {
				t.Errorf("mu holds the key: %t, want %t", mu.Token() != 0, test.want.owned)
			}
			st := status(t, asks, "k")
			holder, lapsed := "", false
			for _, o := range st.Holders {
				holder, lapsed = o.Host, o.Lapsed
			}
			if st.Held() != test.want.locked || holder != test.want.holder || lapsed != test.want.lapsed {
				t.Errorf("the key is held: %t, by %q, lapsed: %t; want %t, by %q, lapsed: %t",
					st.Held(), holder, lapsed, test.want.locked, test.want.holder, test.want.lapsed)
			}
			if lapsed && !strings.Contains(st.String(), "(lapsed)") || !st.Held() && !strings.Contains(st.String(), ", free") {
				t.Errorf("the status as text is\n%s", st)
			}
		})
	}
}

// A holder whose session has no record is shown as lapsed.
func TestStatusWithoutTheSessionsRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		claim := driver.Claim{Key: "k", ID: "gone.1", Session: "gone", Kind: driver.KindMutex, Weight: 1, Limit: 1}
		if _, _, err := storecmd.Acquire(background, store, claim, true, nil, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		st := status(t, newSession(t, store, nil), "k")
		if len(st.Holders) != 1 || !st.Holders[0].Lapsed || st.Held() {
			t.Fatalf("holders are %+v", st.Holders)
		}
		if text := st.String(); !strings.Contains(text, "held by gone, ") || !strings.Contains(text, "until unknown (lapsed)") {
			t.Errorf("the status as text is\n%s", text)
		}
	})
}

// Status texts for people have units and time zones.
func TestStatusInWords(t *testing.T) {
	bubble(t, func(t *testing.T) { // its time begins at 2000-01-01T00:00:00Z
		store := dsynctest.NewMemory()
		store.Skew(5 * time.Millisecond)
		a := newSession(t, store, &dsync.Options{Name: "pod-1", Host: "a.example"})
		b := newSession(t, store, &dsync.Options{Host: "b.example"})
		anonymous := newSession(t, store, &dsync.Options{Anonymous: true})
		noErr(t, a.Semaphore("seats", 7).Acquire(background, 3))
		ctx, cancel := context.WithCancel(background)
		first := waitAt(t, store, "seats", 1, func(ctx context.Context) error { return b.Semaphore("seats", 7).Acquire(ctx, 5) }, ctx)
		second := waitAt(t, store, "seats", 2, func(ctx context.Context) error { return anonymous.Semaphore("seats", 7).Acquire(ctx, 1) }, ctx)
		time.Sleep(1900 * time.Millisecond)
		if _, err := b.Mutex("slot").Lease(background, 90*time.Second); err != nil {
			t.Fatal(err)
		}
		s := newSession(t, store, nil)
		o := s.Once("migration")
		if _, err := o.DoValue(background, func(context.Context) ([]byte, error) { return []byte("1234"), nil }); err != nil {
			t.Fatal(err)
		}
		hold, err := engine.Of(s).Hold(background, engine.Whole("leader", driver.KindElection))
		noErr(t, err)
		hold.Release(background)

		pid := os.Getpid()
		seats := status(t, s, "seats")
		for key, want := range map[string]string{
			"seats": fmt.Sprintf("seats: semaphore, held, size 7, 2 waiting; as of 2000-01-01T00:00:02.005Z by the store's clock\n"+
				"  held by pod-1 (process %d on a.example), 3 of 7, token %d, since 2000-01-01T00:00:00.005Z (for 2s), until 2000-01-01T00:00:11.005Z (in 9s, unless renewed)\n"+
				"  waiting, position 1: process %d on b.example, 5 of 7\n"+
				"  waiting, position 2: %s, 1 of 7\n", pid, seats.Token, pid, anonymous.ID()),
			"slot": fmt.Sprintf("slot: mutex, held, 0 waiting; as of 2000-01-01T00:00:02.005Z by the store's clock\n"+
				"  held by process %d on b.example, token %d, since 2000-01-01T00:00:02.005Z (for 0s), until 2000-01-01T00:01:32.005Z (in 1m30s)\n",
				pid, status(t, s, "slot").Token),
			"migration": "migration: once, done, with a result of 4 bytes, 0 waiting; as of 2000-01-01T00:00:02.005Z by the store's clock\n",
			"leader":    "leader: election, free, term 1, 0 waiting; as of 2000-01-01T00:00:02.005Z by the store's clock\n",
			"nothing":   "nothing: never used, free, 0 waiting; as of 2000-01-01T00:00:02.005Z by the store's clock\n",
		} {
			if got := status(t, s, key).String(); got != want {
				t.Errorf("the status as text is\n%swant\n%s", got, want)
			}
		}
		cancel()
		<-first
		<-second
	})
}

func TestStatusErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("the store is broken")
		store := &brokenStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		ask := func(ctx context.Context, key string) error {
			_, err := admin.New(s).Status(ctx, key)
			if err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("dsync: status of %q: ", key)) {
				t.Errorf("the error is %q", err)
			}
			return err
		}
		wantErr(t, "Status of an empty key", ask(background, ""), dsync.ErrInvalidKey)
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "Status when ctx has ended", ask(ctx, "k"), context.Canceled)
		lock(t, s.Mutex("k"))
		for _, method := range []dsynctest.Method{dsynctest.MethodLoad, dsynctest.MethodMembers} {
			store.fail(method, broken)
			wantErr(t, "Status of a broken store", ask(background, "k"), broken)
			store.fail(method, nil)
		}
		s.Close(background)
		wantErr(t, "Status on a closed session", ask(background, "k"), dsync.ErrClosed)
		for _, err := range admin.New(s).List(background, "") {
			wantErr(t, "List on a closed session", err, dsync.ErrClosed)
		}
	})
}

// collect returns the keys of a list, and its error.
func collect(list iter.Seq2[admin.Status, error]) (keys []string, err error) {
	for st, e := range list {
		if e != nil {
			err = e
			continue
		}
		if err != nil {
			return keys, fmt.Errorf("a status came after the error: %w", err)
		}
		keys = append(keys, st.Key)
	}
	return keys, err
}

// List finds keys by prefix and returns them in byte order, whatever characters they contain.
func TestListByPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		keys := []string{
			"a", "a.b", "a*", "a.*", "a\\d", "^a", "$a", "a b", "a/b/c", "a\nb", "ä", "ключ", "A", "aa", "ab", "a\U0010ffff", "[a]", "(", "%", "_", "\x01", "\x7f",
		}
		for _, key := range keys {
			turn(s.Mutex(key))
		}
		slices.Sort(keys)
		for _, prefix := range []string{"", "a", "a.", "a.*", "a*", "a\\", "^", "$", "A", "[", "(", "a\n", "ключ", "nothing", "ä", "a\U0010ffff", "%"} {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			if got, err := collect(admin.New(s).List(background, prefix)); err != nil || !slices.Equal(got, want) {
				t.Errorf("List(%q) is %q, %v, want %q", prefix, got, err, want)
			}
			for _, after := range []string{"a", "a.b", "b", "nothing"} {
				rest := slices.DeleteFunc(slices.Clone(want), func(key string) bool { return key <= after })
				if got, err := collect(admin.New(s).ListAfter(background, prefix, after)); err != nil || !slices.Equal(got, rest) {
					t.Errorf("ListAfter(%q, %q) is %q, %v, want %q", prefix, after, got, err, rest)
				}
			}
		}
	})
}

// A list is read while it is iterated. The first read returns a page of a hundred keys, and each
// further read a page twice as long, up to a thousand keys. For each page, one more read returns
// the sessions of its keys.
func TestListCost(t *testing.T) {
	testkit.Large(t)
	for _, test := range []struct{ keys, take, pages int }{
		{0, 1, 1}, {1, 9, 1}, {99, 999, 1}, {100, 999, 2}, {100, 100, 1}, {101, 999, 2},
		{1000, 1, 1}, {1000, 100, 1}, {1000, 101, 2}, {1000, 250, 2}, {1000, 301, 3}, {1000, 9999, 4},
		{10_000, 99_999, 13},
	} {
		if testing.Short() && test.keys > 1000 {
			continue
		}
		inBubble(t, fmt.Sprintf("%d of %d", test.take, test.keys), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var sessions []*dsync.Session
			for range 3 {
				s := newSession(t, store, nil)
				sessions = append(sessions, s)
			}
			for i := range test.keys {
				lock(t, sessions[i%3].Mutex(fmt.Sprintf("%05d", i)))
			}
			before := store.Counts()
			n := 0
			for st, err := range admin.New(newSession(t, store, nil)).List(background, "") {
				noErr(t, err)
				if want := fmt.Sprintf("%05d", n); st.Key != want {
					t.Fatalf("key %d is %q, want %q", n, st.Key, want)
				}
				if len(st.Holders) != 1 || st.Holders[0].Session != sessions[n%3].ID() || st.Holders[0].PID != os.Getpid() {
					t.Fatalf("holders of %q are %+v", st.Key, st.Holders)
				}
				if n++; n == test.take {
					break
				}
			}
			if want := min(test.keys, test.take); n != want {
				t.Errorf("the list has %d keys, want %d", n, want)
			}
			members := 0 // sessions are read once for each page that is not empty
			for got, page := 0, 100; got < min(test.keys, test.take); members++ {
				got, page = got+page, min(2*page, 1000)
			}
			d := store.Counts().Since(before)
			if d.Commands[dsynctest.MethodKeys] != test.pages || d.Commands[dsynctest.MethodMembers] != members || d.Total() != test.pages+members {
				t.Errorf("the commands are %v, want %d Keys and %d Members", d.Commands, test.pages, members)
			}
		})
	}
}

// An error is the last element, after the keys that were read before the error. Adding or removing
// keys during the iteration does no harm.
func TestListErrorComesLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("the store is broken")
		store := &brokenStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		for i := range 400 {
			lock(t, s.Mutex(fmt.Sprintf("%03d", i)))
		}
		for _, method := range []dsynctest.Method{dsynctest.MethodKeys, dsynctest.MethodMembers} {
			n, errs := 0, 0
			for _, err := range admin.New(s).List(background, "") {
				if err != nil {
					errs++
					wantErr(t, "List of a store that broke", err, broken)
					if !strings.HasPrefix(err.Error(), `dsync: list "": `) {
						t.Errorf("the error is %q", err)
					}
					continue
				}
				if n++; n == 150 {
					store.fail(method, broken)
				}
				if errs > 0 {
					t.Error("List continued after the error")
				}
			}
			if n != 300 || errs != 1 {
				t.Errorf("the list has %d statuses and %d errors, want 300 and 1", n, errs)
			}
			store.fail(method, nil)
		}

		ctx, cancel := context.WithCancel(background)
		defer cancel()
		n := 0
		var last error
		for _, err := range admin.New(s).List(ctx, "") {
			if n++; n == 100 {
				cancel()
			}
			last = err
		}
		wantErr(t, "List when ctx ends", last, context.Canceled)
		if n != 101 {
			t.Errorf("the list has %d elements, want 100 statuses and the error", n)
		}

		// Each page shows one moment. A key that is added later is listed only if it comes after the last key of the
		// page.
		var keys []string
		for st, err := range admin.New(s).List(background, "") {
			noErr(t, err)
			if st.Key == "050" {
				turn(s.Mutex("0005"))
				turn(s.Mutex("1995"))
			}
			keys = append(keys, st.Key)
		}
		if len(keys) != 401 || !slices.IsSorted(keys) || slices.Contains(keys, "0005") || !slices.Contains(keys, "1995") {
			t.Errorf("the list has %d keys, want 401 in order, with 1995 and without 0005: %q", len(keys), keys)
		}
	})
}

// A key can have more holders than the number of sessions that one read returns.
func TestStatusOfManySessions(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		const readers = 1100
		for i := range readers {
			id := fmt.Sprint("s", i)
			if _, err := store.Register(background, driver.Member{ID: id, TTL: time.Hour, PID: i + 1}); err != nil {
				t.Fatal(err)
			}
			c := driver.Claim{Key: "k", ID: id + ".1", Session: id, Kind: driver.KindRWMutex, Weight: 1, Limit: 1 << 30}
			if _, _, err := storecmd.Acquire(background, store, c, false, nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		before := store.Counts()
		st := status(t, newSession(t, store, nil), "k")
		if n := store.Counts().Since(before).Commands[dsynctest.MethodMembers]; n != 2 {
			t.Errorf("Status made %d readings of %d sessions, want 2", n, readers)
		}
		if len(st.Holders) != readers {
			t.Fatalf("the status has %d holders, want %d", len(st.Holders), readers)
		}
		for i, o := range st.Holders {
			if o.PID != i+1 || o.Lapsed {
				t.Fatalf("holder %d is %+v", i, o)
			}
		}
	})
}
