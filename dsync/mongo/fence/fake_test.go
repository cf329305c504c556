package fence_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/mongofake"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var (
	noErr    = testkit.NoErr
	inBubble = testkit.InBubble
)

// A fake is a server that answers commands with a function of the test. It computes nothing.
type fake struct {
	*mongofake.Server
	t testing.TB

	mu     sync.Mutex
	answer func(call) bson.D
	calls  []call // all but the driver's own
}

// A call is one command that arrived.
type call struct {
	name string
	cmd  bson.Raw
}

var (
	lost   = mongofake.Lost
	silent = mongofake.Silent
)

func ok(fields ...bson.E) bson.D { return mongofake.OK(fields...) }

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func refusal(code int, name string) bson.D { return mongofake.Refusal(code, name) }

// newFake returns a fake that presents itself as a MongoDB replica set.
func newFake(t testing.TB) *fake {
	f := &fake{t: t}
	hello := mongofake.Hello()
	f.Server = mongofake.New(func(name string, cmd bson.Raw) bson.D {
		switch name {
		case "hello", "isMaster", "ismaster":
			return ok(hello[:len(hello):len(hello)]...)
		case "endSessions", "killCursors":
			return ok()
		}
		f.mu.Lock()
		answer, c := f.answer, call{name: name, cmd: cmd}
		f.calls = append(f.calls, c)
		f.mu.Unlock()
		return answer(c)
	})
	return f
}

// client returns a client of f: see [mongofake.Server.Client].
func (f *fake) client(opts ...*options.ClientOptions) *mongo.Client {
	f.t.Helper()
	return f.Client(f.t, opts...)
}

// script makes f call answer for each command from now on, and forget the commands so far.
func (f *fake) script(answer func(call) bson.D) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer, f.calls = answer, nil
}

// took returns the commands that have arrived since script was last called.
func (f *fake) took() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// sent returns the names of the commands that have arrived since script was last called.
func (f *fake) sent() (names []string) {
	for _, c := range f.took() {
		names = append(names, c.name)
	}
	return names
}

// wantCommands checks the names of the commands that have arrived since script was last called.
func (f *fake) wantCommands(want string) {
	f.t.Helper()
	if got := strings.Join(f.sent(), " "); got != want {
		f.t.Errorf("the commands were %s, want %s", got, want)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustMarshal(t testing.TB, v any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(v)
	noErr(t, err)
	return raw
}
