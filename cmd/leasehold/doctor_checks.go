package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"github.com/leasehold-go/leasehold/internal/mongouri"
	"github.com/leasehold-go/leasehold/internal/statusjson"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// topologyOf describes how the servers are joined.
func topologyOf(h mongoclient.Hello) string {
	switch {
	case h.Sharded():
		return "sharded cluster"
	case h.SetName != "":
		return fmt.Sprintf("replica set of %d", max(1, len(h.Hosts)+len(h.Passives)+len(h.Arbiters)))
	}
	return "standalone"
}

// runLive returns the servers on which the tests ran. A test compares it with docs/support.md.
func runLive() []string { return []string{"MongoDB 4.4.6", "MongoDB 5.0.0-rc4", "FerretDB 2.7.0"} }

func (e *exam) checkServer(ctx context.Context) finding {
	if err := e.command(ctx, "admin", bson.D{{Key: "hello", Value: 1}}, &e.hello); err != nil {
		return e.failed(err)
	}
	e.before, _ = e.collections(ctx) // without the right to list them, none
	var build struct {
		Version  string `bson:"version"`
		FerretDB struct {
			Version string `bson:"version"`
		} `bson:"ferretdb"`
	}
	product, version := "MongoDB", fmt.Sprintf("of unknown version (wire version %d)", e.hello.MaxWireVersion)
	// The strict Stable API has no buildInfo.
	if err := e.command(ctx, "admin", bson.D{{Key: "buildInfo", Value: 1}}, &build); err == nil {
		version = plain(build.Version)
	}
	switch {
	case build.FerretDB.Version != "":
		product, version = "FerretDB", plain(strings.TrimPrefix(build.FerretDB.Version, "v"))
	case !e.hello.MongoDB():
		product = "compatible with MongoDB"
	}
	name := product + " " + version
	f := found("%s, %s; this project's tests ran on it", name, topologyOf(e.hello))
	if !slices.Contains(runLive(), name) {
		f.Found = fmt.Sprintf("%s, %s; this project's tests did not run on it", name, topologyOf(e.hello))
		f.Do = "report this output, please: https://github.com/leasehold-go/leasehold/issues"
	}
	if len(e.hello.Arbiters) > 0 && len(e.hello.Hosts)+len(e.hello.Passives) == 2 {
		f = f.advise(levelWarn, "replace the arbiter by a member with data: if one of the two others stands still, no lock is granted or kept")
	}
	return f.with("product", product).with("version", version).with("topology", topologyOf(e.hello))
}

// collections returns the names of the library's collections.
func (e *exam) collections(ctx context.Context) ([]string, error) {
	all, err := e.db.ListCollectionNames(ctx, bson.D{}, options.ListCollections().SetAuthorizedCollections(true))
	return slices.DeleteFunc(all, func(name string) bool {
		return name != e.target.collection && !strings.HasPrefix(name, e.target.collection+mongoclient.NoticeSuffix)
	}), err
}

// A privilege is an entry in the reply to connectionStatus.
type privilege struct {
	Resource struct {
		DB, Collection *string
		Any            bool `bson:"anyResource"`
	}
	Actions []string
}

// allows reports whether p allows an action on a collection. An empty name in p means all databases, or all
// collections.
func (p privilege) allows(db, collection, action string) bool {
	matches := func(pattern *string, name string) bool { return pattern != nil && (*pattern == "" || *pattern == name) }
	return slices.Contains(p.Actions, action) &&
		(p.Resource.Any || matches(p.Resource.DB, db) && matches(p.Resource.Collection, collection))
}

func (e *exam) checkRights(ctx context.Context) finding {
	var status struct {
		Info struct {
			Users      []struct{ User, DB string } `bson:"authenticatedUsers"`
			Privileges []privilege                 `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err := e.command(ctx, "admin", bson.D{{Key: "connectionStatus", Value: 1}, {Key: "showPrivileges", Value: true}}, &status)
	switch {
	case err != nil && ctx.Err() != nil, mongo.IsNetworkError(err):
		return e.failed(err)
	case err != nil:
		return found("this server does not list them; the probe tries them")
	case len(status.Info.Users) == 0:
		err := e.command(ctx, e.target.db, bson.D{{Key: "find", Value: e.target.collection}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true}}, nil)
		if err == nil {
			return found("the server asks for no user")
		}
		if !unauthorized(err) {
			return e.failed(err)
		}
		return finding{Found: "the server asks for a user, and the connection string has none"}.
			advise(levelFail, "put one into it: mongodb://USER:PASSWORD@HOST/…")
	}
	lacks := func(collection string, actions ...string) []string {
		return slices.DeleteFunc(actions, func(action string) bool {
			return slices.ContainsFunc(status.Info.Privileges, func(p privilege) bool { return p.allows(e.target.db, collection, action) })
		})
	}
	var missing []string
	add := func(suffix string, actions []string) {
		for _, action := range actions {
			missing = append(missing, action+" on "+e.namespace(suffix))
		}
	}
	add("", lacks(e.target.collection, "find", "insert", "update", "remove"))
	f, l := found("all that are needed"), levelFail
	if len(missing) == 0 {
		l = levelWarn // without those on the collections of notices, waiters poll
	}
	var onNotices []string
	for n := range mongoclient.DefaultNotices + 1 {
		onNotices = append(onNotices, lacks(fmt.Sprint(e.target.collection, mongoclient.NoticeSuffix, n), "find", "insert", "createCollection", "convertToCapped")...)
	}
	slices.Sort(onNotices)
	add(fmt.Sprint(mongoclient.NoticeSuffix, "0 to .", mongoclient.DefaultNotices), slices.Compact(onNotices))
	if len(missing) > 0 {
		u := status.Info.Users[0]
		f = finding{Found: "missing: " + strings.Join(missing, ", ")}.
			advise(l, `db.getSiblingDB(%q).grantRolesToUser(%q, [{role: "readWrite", db: %q}]), or see Rights in docs/operations.md`, u.DB, u.User, e.target.db)
	}
	return f.with("missing", append([]string{}, missing...))
}

func (e *exam) checkProbe(ctx context.Context) finding {
	store, err := dsyncmongo.NewStore(ctx, e.db, &dsyncmongo.Options{
		Collection: e.target.collection, NoticeCollections: 1, Session: dsync.Options{Logger: slog.New(e.log)},
	})
	if err != nil {
		return e.failed(err)
	}
	e.store = store
	return found("the server computes the library's commands as MongoDB does")
}

// ownRecord returns the _id of the record for plain writes. Records with its prefix are the probe's, so that a sweep
// deletes those that were left.
func (e *exam) ownRecord() string { return "p/doctor/" + e.id }

// concern returns the write concern of the library. A replica set journals majority writes by default.
func (e *exam) concern() bson.D {
	c := bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: max(1, (e.target.timeout * 7 / 8).Milliseconds())}}
	if e.hello.MongoDB() && !e.noJournal {
		c = append(c, bson.E{Key: "j", Value: true})
	}
	return c
}

// write makes a plain write with the library's write concern.
func (e *exam) write(ctx context.Context) error {
	return e.command(ctx, e.target.db, bson.D{
		{Key: "update", Value: e.target.collection},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: e.ownRecord()}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "$setOnInsert", Value: bson.D{{Key: "at", Value: time.Now()}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: e.concern()},
	}, nil)
}

func (e *exam) checkWrites(ctx context.Context) finding {
	e.wrote = append(e.wrote, e.ownRecord())
	began := time.Now()
	err := e.write(ctx)
	took := time.Since(began)
	var w mongo.WriteException
	var refusal mongo.ServerError
	switch {
	case err == nil:
	case errors.As(err, &refusal) && refusal.HasErrorCode(2) && strings.Contains(err.Error(), "journal"):
		e.noJournal = true
		return finding{Found: "the server keeps no journal: if it crashes, it forgets locks that were granted"}.
			advise(levelFail, "start it with a journal, or use a replica set")
	case errors.As(err, &w) && w.WriteConcernError != nil:
		return finding{Found: "no majority confirmed a write: " + cutMiddle(oneLine(err), longestError)}.
			advise(levelFail, "see rs.status(): a member is down, or lags")
	default:
		return e.failed(err)
	}
	f := found("confirmed by a majority, in %s", span(took)).with("took_ms", statusjson.Milliseconds(took))
	if e.hello.MongoDB() {
		f.Found = fmt.Sprintf("confirmed by a majority and the journal, in %s", span(took))
	}
	var r struct {
		Config struct {
			Journal *bool `bson:"writeConcernMajorityJournalDefault"`
		}
	}
	// The user may lack the right to read the configuration, which is nothing to worry about: true is the default.
	err = e.command(ctx, "admin", bson.D{{Key: "replSetGetConfig", Value: 1}}, &r)
	if err == nil && r.Config.Journal != nil && !*r.Config.Journal {
		f.Found = "confirmed by a majority, but not by the journal: a crash of a majority forgets locks that were granted"
		f = f.advise(levelWarn, "c = rs.conf(); c.writeConcernMajorityJournalDefault = true; rs.reconfig(c)")
	}
	return f
}

// clockLimit is the default of dsync.Options.Margin, and of the flag --limit of the clock command.
const clockLimit = 500 * time.Millisecond

func (e *exam) checkClocks(ctx context.Context) finding {
	opt := clockcheck.Options{NoLimit: true, Timeout: e.target.timeout}
	if opt.Servers = e.target.options(); opt.Servers.LoadBalanced != nil && *opt.Servers.LoadBalanced {
		opt.Servers = nil
	}
	r, err := clockcheck.Check(ctx, e.db.Client(), &opt)
	if errors.Is(err, clockcheck.ErrStepped) {
		return finding{Found: oneLine(err)}.advise(levelWarn, "find out what sets the clock, and have it slewed")
	}
	if err != nil {
		return e.failed(err)
	}
	return judgeClocks(r)
}

func judgeClocks(r clockcheck.Result) finding {
	f, host, bound := found("%v", r), time.Duration(0), time.Duration(0)
	for _, s := range r.Servers {
		if s.Offset.Abs() >= host.Abs() {
			host, bound = s.Offset, s.Bound
		}
	}
	switch {
	case within(r.Spread, r.SpreadBound, clockLimit) != clockOK:
		f = f.advise(levelFail, "synchronize the servers' clocks with NTP: a fail-over can grant a lock that is held")
	case within(host, bound, clockLimit) != clockOK:
		f = f.advise(levelWarn, "synchronize this host's clock with NTP; locks do not depend on it, but logs and schedules do")
	}
	return f.with("offset_ms", statusjson.Milliseconds(host)).with("spread_ms", statusjson.Milliseconds(r.Spread))
}

func (e *exam) checkNotices(ctx context.Context) finding {
	if e.store == nil {
		return untried("probe")
	}
	e.log.text = ""
	listening := false
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	err := e.store.Listen(within, e.id, nil, func(n driver.Notice) {
		if n.Type == driver.NoticeReady {
			listening = true
			cancel()
		}
	})
	switch {
	case listening:
		return found("waiters are notified").with("notified", true)
	case !errors.Is(err, errors.ErrUnsupported):
		return e.failed(err)
	case e.log.text == "": // no warning: this kind of server has none
		return found("waiters poll, every 250ms unless Options.PollInterval says otherwise: this server has no capped collections").with("notified", false)
	}
	i := strings.LastIndex(e.log.text, "; ")
	return finding{Found: e.log.text[:max(i, 0)]}.advise(levelWarn, "%s", strings.TrimPrefix(e.log.text[max(i, 0):], "; ")).with("notified", false)
}

func (e *exam) checkPool(context.Context) finding {
	set, want := options.Client().ApplyURI(e.target.uri), mongoclient.Options(e.target.ttl, 0)
	parsed, err := connstring.ParseAndValidate(e.target.uri)
	if err != nil {
		return e.failed(mongouri.Redact(err)) // cannot happen: it was parsed before
	}
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	advised := []string{fmt.Sprint("maxPoolSize=", *want.MaxPoolSize)}
	var bad, better []string
	l := levelWarn
	if n := set.MaxPoolSize; n != nil && *n > 0 && *n < *want.MaxPoolSize {
		bad, better = append(bad, fmt.Sprint("maxPoolSize=", *n)), append(better, advised[0])
		if *n < 2 {
			l = levelFail // a listener would keep heartbeats waiting
		}
	}
	for _, o := range []struct {
		name     string
		got, max *time.Duration
	}{
		{"connectTimeoutMS", set.ConnectTimeout, want.ConnectTimeout},
		{"heartbeatFrequencyMS", set.HeartbeatInterval, want.HeartbeatInterval},
		{"maxIdleTimeMS", set.MaxConnIdleTime, want.MaxConnIdleTime},
	} {
		advised = append(advised, o.name+"="+ms(*o.max))
		if o.got != nil && (*o.got > *o.max || *o.got == 0) {
			bad, better = append(bad, o.name+"="+ms(*o.got)), append(better, advised[len(advised)-1])
		}
	}
	advised = append(advised, "serverMonitoringMode="+*want.ServerMonitoringMode)
	if parsed.SocketTimeoutSet {
		bad, better = append(bad, "socketTimeoutMS="+ms(parsed.SocketTimeout)), append(better, "no socketTimeoutMS (the Go driver ignores it)")
	}
	if set.Direct != nil && *set.Direct && e.hello.SetName != "" && len(e.hello.Hosts) > 1 {
		bad, better = append(bad, "directConnection=true"), append(better, "replicaSet="+plain(e.hello.SetName)+" and no directConnection (or it cannot follow a fail-over)")
	}
	if len(bad) > 0 {
		return finding{Found: "the connection string has " + strings.Join(bad, ", ")}.
			advise(l, "for a TTL of %v, use %s", e.target.ttl, strings.Join(better, ", "))
	}
	return found("the connection string suits Connect and a TTL of %v; for Open, add %s", e.target.ttl, strings.Join(advised, "&"))
}

// maxExamined bounds the number of keys that the check of the records reads.
const maxExamined = 10_000

func (e *exam) checkRecords(ctx context.Context) finding {
	store, err := e.view(ctx)
	if err != nil {
		return e.failed(err)
	}
	var f finding
	err = openView(ctx, &view{store: store, target: e.target}, func(ctx context.Context, v *view) (err error) {
		f, err = judgeRecords(ctx, v.Inspector)
		return err
	})
	if err != nil {
		return e.failed(err)
	}
	return f
}

func judgeRecords(ctx context.Context, inspector *admin.Inspector) (finding, error) {
	members, now, err := inspector.Members(ctx)
	if err != nil {
		return finding{}, err
	}
	var late []string
	for _, m := range members {
		if silent := now.Sub(m.LastHeartbeat); silent > 2*cmp.Or(m.Settings.Heartbeat, m.TTL/3) {
			late = append(late, fmt.Sprintf("no heartbeat of %s (process %d on %s) for %s", plain(cmp.Or(m.Name, m.ID)), m.PID, plain(m.Host), age(silent)))
		}
	}
	var oldest admin.Participant
	var contended []admin.Status
	keys, held, waiting, oldestKey, lapsed := 0, 0, 0, "", []string(nil)
	for st, err := range inspector.List(ctx, "") {
		if err != nil {
			return finding{}, err
		}
		if st.Waiting > 0 {
			contended = append(contended, st)
		}
		waiting += st.Waiting
		if st.Held() {
			held++
		}
		for _, h := range st.Holders {
			switch {
			case h.Lapsed:
				lapsed = append(lapsed, plain(st.Key)+" of "+describe(h))
			case oldestKey == "" || h.Since.Before(oldest.Since):
				oldest, oldestKey = h, st.Key
			}
		}
		if keys++; keys == maxExamined {
			break
		}
	}
	deadlocks := 0
	if len(admin.FindDeadlocks(contended, contended)) > 0 {
		d, err := inspector.Deadlocks(ctx, "")
		if err != nil {
			return finding{}, err
		}
		deadlocks = len(d)
	}
	f := found("processes: %d; keys: %d, held: %d, waiting requests: %d", len(members), keys, held, waiting)
	if oldestKey != "" {
		f.Found += fmt.Sprintf("; the oldest hold is %s, for %s, by %s", plain(oldestKey), age(now.Sub(oldest.Since)), describe(oldest))
	}
	switch {
	case deadlocks > 0:
		f = f.advise(levelWarn, "%d possible deadlocks: leasehold status shows them, and leasehold break KEY ends one", deadlocks)
	case len(late) > 0:
		f = f.advise(levelWarn, "look at the process, or its network: %s", strings.Join(late[:min(len(late), 3)], ", "))
	case len(lapsed) > 0:
		f = f.advise(levelWarn, "find out how the process ended; the next request gets the key: %s", strings.Join(lapsed[:min(len(lapsed), 3)], ", "))
	}
	return f.with("processes", len(members)).with("late", len(late)).with("keys", keys).with("held", held).
		with("waiting", waiting).with("lapsed", len(lapsed)).with("deadlocks", deadlocks), nil
}
