package dsynchttp_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

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
			if err != nil {
				t.Fatal(err)
			}
			if err := hold.Publish(background, []byte(key)); err != nil {
				t.Fatal(err)
			}
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
