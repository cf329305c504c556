//go:build linux || darwin || freebsd

package keep

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// through returns a file that contains the text and then ends.
func through(t *testing.T, text string) *os.File {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	go func() {
		in.WriteString(text)
		in.Close()
	}()
	return out
}

func TestMessagesArriveUnchanged(t *testing.T) {
	orders := []Order{
		{},
		{Stop: 1 << 62, Kill: time.Duration(1<<63 - 1), Env: []string{"A=b c", "", "D=\"e\"\n\\ \x00\xff é="}},
		{Signal: 15},
		{Stop: -1, Env: []string{"LONG=" + strings.Repeat("k", 10_000)}}, // more than one read
	}
	reports := []Report{{}, {Started: 1 << 22}, {Job: 20}, {Failed: "fork/exec a \"b\": no such file\n", Status: 127}, {Status: 143, Stopped: true}}
	arriveUnchanged(t, orders, Order.Line, Orders)
	arriveUnchanged(t, reports, Report.line, Reports)
}

func arriveUnchanged[M any](t *testing.T, sent []M, line func(M) []byte, read func(*os.File, func(M))) {
	t.Helper()
	var text string
	for _, m := range sent {
		text += string(line(m))
	}
	var got []M
	read(through(t, text), func(m M) { got = append(got, m) })
	if !reflect.DeepEqual(got, sent) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

// Something else than a message ends the messages.
func TestMessagesEndWithAnything(t *testing.T) {
	for _, text := range []string{"x\n", "1 2\n", "1 2 3 \"\n", "1 2 x\n", "\n", "1 2 3"} {
		Orders(through(t, text+string(Order{}.Line())), func(o Order) { t.Errorf("%q: got order %+v, want none", text, o) })
	}
	Reports(through(t, "1 2 3 4\n"), func(r Report) { t.Errorf("got report %+v, want none", r) })
}

func TestEnvironmentReplaces(t *testing.T) {
	got := environment([]string{"A=1", "LEASEHOLD_KEY=old", "=C:=x", "B", "AB=3"}, []string{"LEASEHOLD_KEY=a=b", "B=2"})
	if want := []string{"A=1", "=C:=x", "AB=3", "LEASEHOLD_KEY=a=b", "B=2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
