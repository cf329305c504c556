package dsynchttp_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
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

var inputs = regexp.MustCompile(`<input[^>]*>`)

// Wherever the page shows a name chosen by another process, it escapes invisible characters and characters that
// change the direction of text. Links lead to the unchanged key.
func TestPageShowsWhatCannotBeSeen(t *testing.T) {
	for key, shown := range map[string]string{
		"invoices/export":            "invoices/export",
		"päivä/日本/שלום":              "päivä/日本/שלום", // letters of right-to-left scripts are not escaped
		"a\u202egnp.exe":             `"a\u202egnp.exe"`,
		"\u2066a\u2069":              `"\u2066a\u2069"`,
		"a\u200bb":                   `"a\u200bb"`,
		"a\u061cb":                   `"a\u061cb"`,
		"a\u00a0b":                   `"a\u00a0b"`,
		"a\nb":                       `"a\nb"`,
		`a\u202eb`:                   `a\u202eb`, // a backslash, a letter and digits, all of which can be seen
		"\x1b[31m":                   `"\x1b[31m"`,
		`"a\u202eb"`:                 `"\"a\\u202eb\""`,
		"bell\a":                     `"bell\a"`,
		"tag\U000e0041":              `"tag\U000e0041"`,
		"\U0001f469\u200d\U0001f52c": `"` + "\U0001f469" + `\u200d` + "\U0001f52c" + `"`,
	} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, &dsync.Options{Name: key, Host: key, App: key})
			h := newPage(t, s, nil)
			hold, err := engine.Of(s).Hold(background, engine.Whole(key, driver.KindElection))
			noErr(t, err)
			noErr(t, hold.Publish(background, []byte(key)))
			for _, url := range []string{"/", "/key?key=" + urlOf(key), "/?prefix=" + urlOf(key), "/?contains=" + urlOf(key+"none")} {
				body := get(h, url).Body.String()
				body = inputs.ReplaceAllString(body, "") // a search text that the user typed is not escaped
				if key != shown && strings.Contains(strings.ReplaceAll(body, "\n", ""), strings.ReplaceAll(key, "\n", "")) && !strings.Contains(key, "\n") && !strings.HasPrefix(key, `"`) {
					i := strings.Index(body, key)
					t.Errorf("GET %s has %q unescaped: %q", url, key, body[max(0, i-50):i+20])
				}
				if strings.HasPrefix(url, "/?contains") {
					continue
				}
				if n := strings.Count(html.UnescapeString(body), shown); n < 4 {
					t.Errorf("GET %s has %s %d times, want key, name, host and application", url, shown, n)
				}
			}
			if l := getJSON(t, h, "/"); l.Keys[0].Key != key {
				t.Errorf("JSON has %q, want %q unescaped", l.Keys[0].Key, key)
			}
			if w := get(h, "/key?key="+urlOf(key)); w.Code != 200 {
				t.Errorf("the page of %q has status %d", key, w.Code)
			}
			hold.Release(background)
		})
	}
}
