package integration_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// oddRegistry encodes 64-bit integers and times as text, which a program may want for its own
// documents.
func oddRegistry() *bson.Registry {
	r := bson.NewRegistry()
	asText := bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		return w.WriteString("odd")
	})
	r.RegisterTypeEncoder(reflect.TypeFor[int64](), asText)
	r.RegisterTypeEncoder(reflect.TypeFor[time.Time](), asText)
	return r
}

// usersOptions are client options that users may set. With each of them, Open and Connect work, and sessions can wait
// for each other's locks.
var usersOptions = map[string]func() *options.ClientOptions{
	"a time-out for every operation": func() *options.ClientOptions { return options.Client().SetTimeout(2 * time.Second) },
	"reads from secondaries":         func() *options.ClientOptions { return options.Client().SetReadPreference(readpref.Secondary()) },
	"reads from the nearest":         func() *options.ClientOptions { return options.Client().SetReadPreference(readpref.Nearest()) },
	"reads that any member answers":  func() *options.ClientOptions { return options.Client().SetReadConcern(readconcern.Available()) },
	"writes that nobody confirms": func() *options.ClientOptions {
		return options.Client().SetWriteConcern(writeconcern.Unacknowledged())
	},
	"compressed": func() *options.ClientOptions {
		return options.Client().SetCompressors([]string{"zstd", "zlib", "snappy"})
	},
	"polled by monitors": func() *options.ClientOptions {
		return options.Client().SetServerMonitoringMode("poll")
	},
	"nothing is tried again": func() *options.ClientOptions {
		return options.Client().SetRetryWrites(false).SetRetryReads(false)
	},
	"two connections": func() *options.ClientOptions { return options.Client().SetMaxPoolSize(2) },
	"connections that are kept": func() *options.ClientOptions {
		return options.Client().SetMinPoolSize(4).SetMaxConnecting(1)
	},
	"connections that are dropped at once": func() *options.ClientOptions {
		return options.Client().SetMaxConnIdleTime(50 * time.Millisecond)
	},
	"a registry of its own": func() *options.ClientOptions { return options.Client().SetRegistry(oddRegistry()) },
	"BSON options": func() *options.ClientOptions {
		return options.Client().SetBSONOptions(&options.BSONOptions{
			IntMinSize: true, NilByteSliceAsEmpty: true, NilSliceAsEmpty: true, OmitZeroStruct: true, UseLocalTimeZone: true,
			StringifyMapKeysWithFmt: true, ObjectIDAsHexString: true, BinaryAsSlice: true, ZeroMaps: true, ZeroStructs: true,
		})
	},
	"monitors": func() *options.ClientOptions {
		return options.Client().SetMonitor(&event.CommandMonitor{}).SetServerMonitor(&event.ServerMonitor{}).
			SetPoolMonitor(&event.PoolMonitor{Event: func(*event.PoolEvent) {}})
	},
}

func TestClientOptions(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		for name, opts := range usersOptions {
			t.Run(name, func(t *testing.T) {
				r := newRoom(t, s)
				for _, open := range []string{"Open", "Connect"} {
					sessions := make([]*dsync.Session, 2)
					for i := range sessions {
						o := r.short(patient)
						o.Logger = r.logger()
						if open == "Open" {
							sessions[i] = r.open(server.Connect(t, r.URI, opts()), o)
							continue
						}
						var err error
						sessions[i], err = dsyncmongo.Connect(r.opening(), opts().ApplyURI(r.URI), r.DB, &dsyncmongo.Options{Session: o})
						noErr(t, err)
						t.Cleanup(func() { sessions[i].Close(context.Background()) })
					}
					r.takeTurns(t, open, sessions[0], sessions[1])
					for _, session := range sessions {
						if _, _, err := admin.New(session).Members(t.Context()); err != nil {
							t.Errorf("%s: Members: %v", open, err)
						}
					}
					for st, err := range admin.New(sessions[0]).List(t.Context(), "") {
						if err != nil || st.Limit != 1 {
							t.Errorf("%s: List: %+v, %v", open, st, err)
						}
					}
				}
			})
		}
	})
}

// takeTurns makes two sessions wait for each other several times. If the server has notices, it waits until the waiting
// session listens for them.
func (r *room) takeTurns(t *testing.T, key string, holder, next *dsync.Session) {
	t.Helper()
	h := lock(t, holder.Mutex(key))
	for range 3 {
		store := r.store()
		ch := locking(t.Context(), next.Mutex(key))
		eventually(t, "the other waits", func() bool { return load(t, store, key).Waiting == 1 })
		if r.Has(server.Need{Notices: true}) {
			eventually(t, "the other listens", func() bool { return admin.New(next).Stats().Listening })
		}
		first := h.Token()
		release(t, h)
		g := granted(t, ch)
		if g.token <= first {
			t.Errorf("token %d came after %d, want a greater one", g.token, first)
		}
		h, holder, next = g.h, next, holder
	}
	release(t, h)
}

// If the client options cannot work, Connect returns an error that names the reason.
func TestClientOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		cases := map[string]struct {
			opts *options.ClientOptions
			want []string // the error contains one of them
		}{
			// With loadBalanced=true the driver requires a serviceId from each server. A server sends a serviceId
			// only behind a load balancer.
			"no load balancer": {options.Client().ApplyURI("mongodb://" + r.Primary(t) + "/?loadBalanced=true"), []string{"load balanc"}},
		}
		if s.Has(server.Need{Members: true}) {
			secondary := ""
			for _, m := range s.Set().Members() {
				if m.Addr != r.Primary(t) {
					secondary = m.Addr
				}
			}
			cases["a secondary"] = struct {
				opts *options.ClientOptions
				want []string
			}{options.Client().ApplyURI("mongodb://" + secondary + "/").SetDirect(true), []string{"not master", "not primary", "NotWritablePrimary"}}
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				session, err := dsyncmongo.Connect(ctx, tc.opts, r.DB, &dsyncmongo.Options{Session: r.short(patient)})
				if err == nil {
					session.Close(context.Background())
				}
				if err == nil || !slices.ContainsFunc(tc.want, func(words string) bool { return strings.Contains(err.Error(), words) }) {
					t.Errorf("Connect: %v, want one of %q", err, tc.want)
				} else {
					t.Log(err)
				}
			})
		}
	})
}
