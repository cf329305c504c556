package dsynchttp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// B44: a hold that ends at its planned time does not look like a crash. Until somebody uses the key again, the store's
// record still names the holder. But the status, its JSON and the page show a free key, even in the holder's own
// process.
func TestPlannedEndIsNoCrash(t *testing.T) {
	const d = 20 * time.Second
	for name, hold := range map[string]func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty){
		"ReleaseAfter": func(t *testing.T, s *dsync.Session, _ *dsynctest.Faulty) {
			h, err := s.Mutex("k").Hold(background)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.ReleaseAfter(background, d); err != nil {
				t.Fatal(err)
			}
		},
		"a lease left to end": func(t *testing.T, s *dsync.Session, _ *dsynctest.Faulty) {
			if _, err := s.Mutex("k").Lease(background, d); err != nil {
				t.Fatal(err)
			}
		},
		"a lease of a process that crashed": func(t *testing.T, s *dsync.Session, f *dsynctest.Faulty) {
			if _, err := s.Mutex("k").Lease(background, d); err != nil {
				t.Fatal(err)
			}
			f.Cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				net := dsynctest.NewFaulty(store, nil)
				t.Cleanup(net.Close)
				var log bytes.Buffer
				holder := newSession(t, net, &dsync.Options{
					Host: "batch-1", TTL: d, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				})
				observer := newSession(t, store, nil)
				own, page := newPage(t, holder, nil), newPage(t, observer, nil)
				hold(t, holder, net)
				began := time.Now()
				for time.Since(began) < d { // read the page, as if it were open
					if st, err := admin.New(observer).Status(background, "k"); err != nil || !st.Held() || len(st.Holders) != 1 {
						t.Fatalf("after %v the status is %v, %v", time.Since(began), st, err)
					}
					get(page, "/key?key=k")
					time.Sleep(d / 8)
				}
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				st, err := admin.New(observer).Status(background, "k")
				if err != nil || st.Kind != driver.KindMutex || st.Held() || len(st.Holders) > 0 {
					t.Errorf("the status is %v, %v; want a free mutex without holders", st, err)
				}
				text, _ := json.Marshal(statusjson.NewStatus(st, func(p admin.Participant, queued bool) statusjson.Participant {
					return statusjson.NewParticipant(p, queued, st.Now)
				}))
				shows := map[string]string{
					"the status":       st.String(),
					"its JSON":         string(text),
					"the page":         get(page, "/key?key=k").Body.String(),
					"the page's JSON":  get(page, "/key?key=k&format=json").Body.String(),
					"the holder's own": get(own, "/key?key=k").Body.String(),
					"the overview":     get(page, "/?members=0&prefix=k").Body.String(),
				}
				crashed := strings.Contains(name, "crashed")
				for what, text := range shows {
					for _, bad := range []string{"lapsed", `class="loss"`, "badge lost", `"lost"`} {
						if strings.Contains(text, bad) && !(crashed && what == "the holder's own") {
							t.Errorf("%s has %q:\n%s", what, bad, text)
						}
					}
				}
				wantHistory(t, page, "k", began, fmt.Sprintf("process %d on batch-1 0s-20s", os.Getpid()))
				if log.Len() > 0 && !crashed {
					t.Errorf("the log of the holder warns: %s", log.String())
				}
				net.Heal()
			})
		})
	}
}
