package mongouri_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/mongouri"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The driver's errors quote parts of the connection string. Redact removes these quotes, and keeps the description of
// the problem.
func TestRedact(t *testing.T) {
	for _, c := range []struct{ uri, want string }{
		{"http://u:secret@h", `error parsing uri: scheme must be "mongodb" or "mongodb+srv"`},
		{"mongodb://u:sec%zzret@h/", `error parsing uri: invalid password: invalid URL escape "…"`},
		{"mongodb://u:p@secret:secret/@h", `error parsing uri: invalid host "…": port must be an integer: strconv.Atoi: parsing "…": invalid syntax`},
		{"mongodb://u:p@secret:a:b:c/@h", `error parsing uri: invalid host "…": address …: too many colons in address`},
		{"mongodb://u:p@\"secret\\\":a/@h", `error parsing uri: invalid host "…": port must be an integer: strconv.Atoi: parsing "…": invalid syntax`},
		{"mongodb://u:sec/ret@h/", `error parsing uri: unescaped slash in password`},
		{"mongodb://u:secret@h/?maxPoolSize=x", `error parsing uri: invalid value for "maxPoolSize": "…"`},
		{"mongodb://u:secret@h/?tlsCertificateKeyFilePassword=sec%zz", `error parsing uri: invalid option value "…": invalid URL escape "…"`},
		{"mongodb://u:secret@a,b/?directConnection=true", `error validating uri: a direct connection cannot be made if multiple hosts are specified`},
	} {
		err := options.Client().ApplyURI(c.uri).Validate()
		if got := mongouri.Redact(err); got == nil || got.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.uri, got, c.want)
		}
	}
	lines := errors.New("error parsing uri: invalid host \"…\": address sec\nret:a:b: too many colons in address")
	if got := mongouri.Redact(lines).Error(); strings.Contains(got, "sec") || strings.Contains(got, "ret") {
		t.Errorf("a line feed in the password: got %s, want no part of the password", got)
	}
	lookup := errors.New("error parsing uri: lookup _mongodb._tcp.secret on 127.0.0.1:53: no such host")
	if got := mongouri.Redact(lookup).Error(); got != "error parsing uri: lookup …: no such host" {
		t.Errorf("a look-up: got %s, want the name hidden", got)
	}
	other := errors.New(`the pool has "5" connections`)
	if got := mongouri.Redact(other); got != other {
		t.Errorf("another error: %v, want it as it is", got)
	}
	if mongouri.Redact(nil) != nil {
		t.Error("Redact(nil) is an error, want nil")
	}
}

// Database returns the database that the driver finds, or the default. If the driver takes part of the password for
// a database, Database returns an error.
func TestDatabase(t *testing.T) {
	for _, c := range []struct {
		uri, want string
		err       error
	}{
		{"", "leasehold", nil},
		{"mongodb://h", "leasehold", nil},
		{"mongodb://h/", "leasehold", nil},
		{"mongodb://u:p@h/?appName=a@b/c", "leasehold", nil},
		{"mongodb://u:p@h,i:5/app%322?w=1", "app22", nil},
		{"mongodb+srv://u:p@h/app", "app", nil},
		{"mongodb://u:p@secret/x@h/app", "", mongouri.ErrUnescaped},
	} {
		if got, err := mongouri.Database(c.uri); got != c.want || err != c.err {
			t.Errorf("%q: %q, %v, want %q, %v", c.uri, got, err, c.want, c.err)
		}
	}
}
