package dsynchttp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynchttp"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// history returns what the page shows about a key's last holders, one line each. Times are counted from the last
// argument.
func history(t *testing.T, h *dsynchttp.Handler, key string, began time.Time) (all []string) {
	t.Helper()
	synctest.Wait()
	for _, s := range getJSON(t, h, "/key?key="+key).Keys[0].History {
		who, _, _ := strings.Cut(s.Who, " (")
		line := fmt.Sprintf("%s %v-", who, s.Start.Sub(began))
		if !s.End.IsZero() {
			line += s.End.Sub(began).String()
		}
		if s.Lost != "" {
			line += " lost"
		}
		all = append(all, line)
	}
	return all
}

func wantHistory(t *testing.T, h *dsynchttp.Handler, key string, began time.Time, want ...string) {
	t.Helper()
	if got := history(t, h, key, began); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the history is\n     %q\nwant %q", got, want)
	}
}

// The holds of this process are known from its hooks, whether or not the page is open.
func TestHistoryOfThisProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		t.Cleanup(f.Close)
		s := newSession(t, f, nil)
		h := newPage(t, s, nil)
		mu := s.Mutex("k")
		began := time.Now()
		lock(t, mu)
		time.Sleep(time.Second)
		next := s.Mutex("k")
		go next.Lock()
		synctest.Wait()
		mu.Unlock() // the hand-off time is over, so the key is released and locked again
		synctest.Wait()
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, "this process 0s-1s", "this process 1s-")
		f.Cut()
		<-next.Lost()
		lost := time.Since(began)
		f.Heal()
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, "this process 0s-1s", fmt.Sprintf("this process 1s-%v lost", lost))
		next.Unlock()
		l := getJSON(t, h, "/").Keys[0]
		if !l.History[0].Mine || l.History[0].Token >= l.History[1].Token {
			t.Errorf("history is %+v", l.History)
		}
	})
}

// A claim that is handed off in this process is shown as several holds.
func TestHistoryOfHandOffs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{HandOffTime: time.Hour})
		h := newPage(t, s, nil)
		began := time.Now()
		first, next := s.Mutex("k"), s.Mutex("k")
		lock(t, first)
		go next.Lock()
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, "this process 0s-")
		first.Unlock()
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, "this process 0s-1s", "this process 1s-")
		next.Unlock()
		wantHistory(t, h, "k", began, "this process 0s-1s", "this process 1s-2s")
	})
}

// The holds of other processes are known from the readings while the page is open. Even if the page notices the end of
// a hold late, it shows that the hold ended when the next one began. The store's clock may differ from the host's.
func TestHistoryOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		store.Skew(-3 * time.Hour)
		f := dsynctest.NewFaulty(store, nil)
		t.Cleanup(f.Close)
		h := newPage(t, newSession(t, store, nil), nil)
		a := newSession(t, f, &dsync.Options{Name: "a", Host: "a"})
		b := newSession(t, store, &dsync.Options{Name: "b", Host: "b"})
		of := func(s *dsync.Session) string {
			return fmt.Sprintf("process %d on %s", engine.Of(s).Local().PID, s.Options().Name)
		}
		began := time.Now()
		first, second := a.Mutex("k"), b.Mutex("k")
		lock(t, first)
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, of(a)+" 0s-")
		first.Unlock()
		lock(t, second)
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, of(a)+" 0s-1s", of(b)+" 1s-")
		second.Unlock()
		time.Sleep(time.Second)
		wantHistory(t, h, "k", began, of(a)+" 0s-1s", of(b)+" 1s-3s") // the change was noticed a second late

		// The page distinguishes a crash from a release: after a crash, nobody is granted the key before the hold has
		// lapsed.
		lock(t, first)
		f.Cut()
		ctx, cancel := context.WithTimeout(background, time.Hour)
		go func() { defer cancel(); second.LockContext(ctx) }()
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			get(h, "/")
		}
		all := history(t, h, "k", began)
		if len(all) != 4 || !strings.HasPrefix(all[2], of(a)+" 3s-") || !strings.HasSuffix(all[2], " lost") || strings.HasSuffix(all[3], "lost") {
			t.Errorf("after a crash the history is %q", all)
		}
		f.Heal()
		first.Unlock()
		second.Unlock()
	})
}

// B44: a fixed lease that has run out has ended as planned, so it does not look like a crash.
func TestHistoryOfALeaseThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := newPage(t, newSession(t, store, nil), nil)
		if _, err := newSession(t, store, &dsync.Options{Host: "a"}).Mutex("k").Lease(background, ttl); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		get(h, "/")
		time.Sleep(2 * ttl)
		if all := history(t, h, "k", began); len(all) != 1 || !strings.HasSuffix(all[0], " 0s-10s") {
			t.Errorf("the history is %q", all)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h := newPage(t, s, nil)
		for i := range 1100 {
			mu := s.Mutex(fmt.Sprintf("%04d", i))
			lock(t, mu)
			mu.Unlock()
		}
		for range 100 {
			mu := s.Mutex("0000")
			lock(t, mu)
			mu.Unlock()
		}
		synctest.Wait()
		n := 0
		for url := "/?n=1000"; url != ""; {
			l := getJSON(t, h, url)
			for _, k := range l.Keys {
				if len(k.History) > 0 {
					n++
				}
			}
			url = strings.TrimPrefix(l.Next, ".")
		}
		if n != 1000 {
			t.Errorf("%d keys have a history, want 1000", n)
		}
		if got := len(getJSON(t, h, "/key?key=0000").Keys[0].History); got != 16 {
			t.Errorf("the history of a key has %d holds, want 16", got)
		}
	})
}

// The timeline shows each hold in its window, and each hand-off and loss. It shows concurrent holds side by side.
func TestTimelineIsDrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{AlwaysListen: true})
		h := newPage(t, s, nil)
		sem := s.Semaphore("sem", 3)
		began := time.Now()
		for range 3 {
			noErr(t, sem.Acquire(background, 1))
		}
		mu := s.Mutex("mu")
		lock(t, mu)
		time.Sleep(30 * time.Second)
		mu.Unlock()
		lock(t, mu)
		go admin.New(newSession(t, store, nil)).Break(background, "mu")
		<-mu.Lost()
		time.Sleep(time.Until(began.Add(45 * time.Second))) // Break itself has taken some time
		mu.Unlock()
		for _, test := range []struct {
			key   string
			parts []string
		}{
			{"sem", []string{`aria-label="3 holds, 0 losses in the last 1 min"`, `y="3" height="5"`, `y="8" height="5"`, `y="13" height="5"`, `class="own" x="25.00%" width="1075.00%"`}},
			{"mu", []string{`aria-label="2 holds, 1 loss in the last 1 min"`, `class="own" x="25.00%" width="50.00%" y="3" height="16"`, `class="hand"`, `class="loss"`, "asked to give the key up"}},
		} {
			body := get(h, "/key?window=1m&key="+test.key).Body.String()
			for _, part := range test.parts {
				if !strings.Contains(body, part) {
					t.Errorf("the page of %q lacks %s", test.key, part)
				}
			}
		}
		time.Sleep(time.Hour)
		if body := get(h, "/key?window=1m&key=mu").Body.String(); !strings.Contains(body, "0 holds, 0 losses") {
			t.Error("an hour later the one-minute timeline is not empty")
		}
		sem.Release(3)
	})
}

// A release does not look like a crash, even if the holder had been silent for a while or the page
// had been closed for a long time.
func TestHistoryOfReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(store, nil)
		t.Cleanup(f.Close)
		h := newPage(t, newSession(t, store, nil), nil)
		silent, next := newSession(t, f, &dsync.Options{Host: "a"}).Mutex("k"), newSession(t, store, &dsync.Options{Host: "b"}).Mutex("k")
		began := time.Now()
		lock(t, silent)
		f.Cut()
		time.Sleep(ttl * 6 / 10)
		get(h, "/")
		f.Heal()
		silent.Unlock()
		lock(t, next)
		time.Sleep(ttl)
		all := history(t, h, "k", began)
		if len(all) != 2 || strings.HasSuffix(all[0], "lost") {
			t.Errorf("after a silence the history is %q", all)
		}
		next.Unlock()
		time.Sleep(time.Hour)
		all = history(t, h, "k", began)
		if len(all) != 2 || strings.HasSuffix(all[1], "lost") || strings.HasSuffix(all[1], "-") {
			t.Errorf("an hour later the history is %q", all)
		}
		l := getJSON(t, h, "/").Keys[0].History[1]
		if l.End.Sub(l.Seen) < time.Hour/2 {
			t.Errorf("the hold was last seen at %v, and its end is %v; want them at least half an hour apart", l.Seen, l.End)
		}
		if body := get(h, "/key?key=k&window=1h").Body.String(); !strings.Contains(body, " faint") {
			t.Error("the unknown part is not drawn faint")
		}
	})
}
