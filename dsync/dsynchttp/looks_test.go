package dsynchttp_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Two processes that follow each other on a timeline never look the same, even if there are very many processes.
func TestNeighboursLookDifferent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		h := newPage(t, newSession(t, store, nil), nil)
		var fleet []*dsync.Session
		for i := range 17 {
			fleet = append(fleet, newSession(t, store, &dsync.Options{Name: fmt.Sprintf("p%d", i)}))
		}
		for i := range 40 {
			mu := fleet[i*i%len(fleet)].Mutex("k")
			if i < len(fleet) {
				mu = fleet[i].Mutex("k")
			}
			lock(t, mu)
			get(h, "/") // the first view gives the process its colour
			mu.Unlock()
			bars := regexp.MustCompile(`<rect class="(c[^"]*)" x="[^"]*" width="[^"]*" y="[^"]*" height="[^"]*" rx="2"><title>([^,]*),`).
				FindAllStringSubmatch(get(h, "/key?key=k&window=1m").Body.String(), -1)
			if len(bars) == 0 {
				t.Fatal("the timeline has no bars")
			}
			for j := range bars[1:] {
				if a, b := bars[j], bars[j+1]; a[1] == b[1] && a[2] != b[2] {
					t.Errorf("%s and %s follow each other, and both are %q", a[2], b[2], a[1])
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// Times have a time zone and a date, the timeline is explained, and a member's version is shown.
func TestPageExplainsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Name: "me"})
		h := newPage(t, s, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		time.Sleep(time.Minute)
		mu.Unlock()
		synctest.Wait()
		get(h, "/")
		for url, want := range map[string][]string{
			"/": {`<ul class="legend"`, "this process</li>", `<th scope="col">Version</th>`, `data-label="Version">` + getJSON(t, h, "/").Members[0].Version + "</td>"},
			"/key?key=k": {`<ul class="legend"`, `<time datetime="2000-01-01T00:00:00.000Z" title="2000-01-01T00:00:00.000Z">00:00:00 UTC</time>`,
				fmt.Sprintf("token %d, from 00:00:00 UTC to 00:01:00 UTC", getJSON(t, h, "/key?key=k").Keys[0].Token)},
		} {
			body := get(h, url).Body.String()
			for _, w := range want {
				if !strings.Contains(body, w) {
					t.Errorf("%s lacks %q:\n%s", url, w, body)
				}
			}
		}
	})
}
