// Package mongouri finds the database that a connection string names, and removes passwords from errors about
// malformed connection strings.
package mongouri

import (
	"cmp"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// DefaultDatabase is used if a connection string names no database.
const DefaultDatabase = "leasehold"

// ErrUnescaped means that the driver mistakes part of the user name or password for a host or a database.
var ErrUnescaped = errors.New("the user name or the password in the connection string has a character that must be percent-encoded, such as @ (%40) or / (%2F)")

// Database returns the database for locks: the one named in the connection string uri, which the driver has
// accepted, or [DefaultDatabase].
func Database(uri string) (string, error) {
	_, rest, _ := strings.Cut(uri, "://")
	if _, after, ok := strings.Cut(rest, "@"); ok { // at the first @, as the driver does
		rest = after
	}
	rest, _, _ = strings.Cut(rest, "?")
	_, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") {
		return "", ErrUnescaped
	}
	name, _ := url.QueryUnescape(path) // the driver has accepted it
	return cmp.Or(name, DefaultDatabase), nil
}

// ServersOwn reports whether the server keeps its own data in that database. Connection strings often name admin
// only because the user is defined there.
func ServersOwn(database string) bool {
	return slices.Contains([]string{"admin", "config", "local"}, database)
}

// patterns are for [Redact]. Most programs never need them, so they are compiled when one does.
type patterns struct {
	// aboutURI matches the beginning of the driver's errors about a connection string. Up to version 2.10.0 they can
	// quote parts of the password.
	aboutURI *regexp.Regexp

	// quoted matches what such an error can quote: Go strings, the address in an error of net.SplitHostPort, and a
	// name that was looked up.
	quoted *regexp.Regexp

	// harmless matches quoted words that come from the driver itself: names of schemes and of known options.
	harmless *regexp.Regexp
}

var compiled = sync.OnceValue(func() patterns {
	return patterns{
		aboutURI: regexp.MustCompile(`error (parsing|validating) uri: `),
		quoted:   regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|address .*: |lookup .*: `),
		harmless: regexp.MustCompile(`scheme must be "mongodb" or "mongodb\+srv"$|invalid value for "[A-Za-z]+": `),
	}
})

// Redact returns err, an error of the driver about its options. If err is about a malformed connection string, Redact
// removes the quoted parts of that string, because they may contain part of the user name or the password. Other errors
// are returned unchanged. A redacted error wraps nothing, because the wrapped error would still have the quotes.
func Redact(err error) error {
	if err == nil {
		return nil
	}
	re := compiled()
	if !re.aboutURI.MatchString(err.Error()) {
		return err
	}
	text := err.Error()
	keep := re.harmless.FindStringIndex(text)
	if keep == nil {
		keep = []int{0, 0}
	}
	hide := func(part string) string {
		return re.quoted.ReplaceAllStringFunc(part, func(q string) string {
			if kind, _, named := strings.Cut(q, " "); named && q[0] != '"' {
				return kind + " …: "
			}
			return `"…"`
		})
	}
	return errors.New(hide(text[:keep[0]]) + text[keep[0]:keep[1]] + hide(text[keep[1]:]))
}
