package mongo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// onFile is the file with the list of commands that docs/protocol.md refers to.
const onFile = "../../docs/commands.txt"

// B23: docs/commands.txt lists the store's commands as they are sent. After changing a command, write the file again
// and read the diff:
//
//	LEASEHOLD_WRITE=1 go test ./dsync/mongo -run TestCommandsOnFile
func TestCommandsOnFile(t *testing.T) {
	testkit.Large(t)
	const session, other = "cs9a1h2n0ckk3v5p6q70", "cs9a1h2n0ckk3v5p6q80"
	member := driver.Member{ID: session, TTL: 30 * time.Second, Name: "api-1", Host: "node-7", PID: 4711, App: "shop 1.2", Meta: map[string]string{"zone": "b"}}
	claim := driver.Claim{Key: "invoices", ID: session + ".1", Session: session, Kind: driver.KindMutex, Weight: 1, Limit: 1}
	part := driver.Claim{Key: "workers", ID: session + ".1", Session: session, Kind: driver.KindSemaphore, Weight: 2, Limit: 8}
	lease := claim
	lease.Lease, lease.Token = time.Minute, 1024
	revocation := driver.Revocation{Key: claim.Key, Claim: claim.ID}
	notAfter := time.UnixMilli(1_800_000_005_000)

	held := claim
	held.Token = 1_799_999_990_000 * 1024
	release := func(o driver.Release) func(context.Context, driver.Store) error {
		return func(ctx context.Context, s driver.Store) error {
			_, _, err := storecmd.Release(ctx, s, held, o)
			return err
		}
	}
	replacing := claim
	replacing.ID = session + ".2"
	tick := claim
	tick.Kind, tick.Tick = driver.KindPeriodic, 1_799_999_940_000
	first := claim
	first.First, first.Kind, first.Value = true, driver.KindElection, "10.0.0.7:8080"
	edit := func(e driver.Edit) func(context.Context, driver.Store) error {
		return func(ctx context.Context, s driver.Store) error {
			_, err := s.Edit(ctx, e)
			return err
		}
	}
	acquire := func(c driver.Claim, wait bool, expired ...string) func(context.Context, driver.Store) error {
		return edit(driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: wait, Expired: expired, NotAfter: notAfter}})
	}
	repeated := func(expired ...string) func(context.Context, driver.Store) error {
		return edit(driver.Edit{Acquire: &driver.Acquire{Claim: claim, Wait: true, Expired: expired, NotAfter: notAfter, Repeated: true}})
	}
	releaseOf := func(change func(*driver.Claim)) func(context.Context, driver.Store) error {
		return func(ctx context.Context, s driver.Store) error {
			c := held
			change(&c)
			_, _, err := storecmd.Release(ctx, s, c, driver.Release{})
			return err
		}
	}
	alone := func(c *driver.Claim) { c.NoneWaiting = true }
	listen := func(session string, keys ...string) func(context.Context, driver.Store) error {
		return func(ctx context.Context, s driver.Store) error {
			ctx, cancel := context.WithCancel(ctx)
			if err := s.Listen(ctx, session, keys, func(driver.Notice) { cancel() }); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
	calls := []sending{
		{name: "Register", do: func(ctx context.Context, s driver.Store) error { _, err := s.Register(ctx, member); return err }},
		{name: "Heartbeat", do: func(ctx context.Context, s driver.Store) error { _, err := s.Heartbeat(ctx, session, nil); return err }},
		{name: "Heartbeat that takes a revocation off", do: func(ctx context.Context, s driver.Store) error {
			_, err := s.Heartbeat(ctx, session, []driver.Revocation{revocation})
			return err
		}},
		{name: "Expire", do: func(ctx context.Context, s driver.Store) error { _, err := s.Expire(ctx, other, false); return err }},
		{name: "Unregister", do: func(ctx context.Context, s driver.Store) error { return storecmd.Unregister(ctx, s, session) }},
		{name: "Revoke", do: func(ctx context.Context, s driver.Store) error {
			_, err := s.Revoke(ctx, other, revocation)
			return err
		}},
		{name: "Observe", do: func(ctx context.Context, s driver.Store) error {
			return s.Observe(ctx, session, 3, []string{"jobs/mails", "reports"})
		}},
		{name: "Observe, of nothing any more", do: func(ctx context.Context, s driver.Store) error {
			return s.Observe(ctx, session, 4, nil)
		}},
		{name: "Acquire, waiting", do: acquire(part, true)},
		{name: "Acquire, waiting, that names an expired session", do: acquire(part, true, other)},
		{name: "Acquire, repeated", do: repeated()},
		{name: "Acquire, repeated, that names an expired session", do: repeated(other)},
		{name: "Acquire, a try, at the head of the queue, of an election, with a value", do: acquire(first, false)},
		{name: "Release", do: func(ctx context.Context, s driver.Store) error {
			_, _, err := storecmd.Release(ctx, s, part, driver.Release{})
			return err
		}},
		{name: "Acquire, for a tick", do: acquire(tick, true)},
		{name: "Acquire, short", do: acquire(claim, true)},
		{name: "Release of what was alone, short", do: releaseOf(alone)},
		{name: "Release of what was alone", do: releaseOf(func(c *driver.Claim) {
			c.NoneWaiting, c.Limit = true, 8
		})},
		{name: "Release, a short hand-over", do: release(driver.Release{})},
		{name: "Release, a short hand-over of an election", do: releaseOf(func(c *driver.Claim) { c.Kind = driver.KindElection })},
		{name: "Acquire that replaces, a short hand-over", do: edit(driver.Edit{
			Release: &driver.Release{Claim: held}, Acquire: &driver.Acquire{Claim: replacing, Wait: true, NotAfter: notAfter},
		})},
		{name: "Release that keeps", do: release(driver.Release{Keep: time.Minute})},
		{name: "Release that keeps what was alone, short", do: func(ctx context.Context, s driver.Store) error {
			c := held
			alone(&c)
			_, _, err := storecmd.Release(ctx, s, c, driver.Release{Keep: time.Minute})
			return err
		}},
		{name: "Release to a successor", do: func(ctx context.Context, s driver.Store) error {
			c := held
			c.ID, c.Kind = session+".2", driver.KindElection // in wellAnswered's answers, another claim holds the key
			_, _, err := storecmd.Release(ctx, s, c, driver.Release{Successor: other + ".4"})
			return err
		}},
		{name: "Release that seals", do: release(driver.Release{Seal: 1_799_999_940_000, Result: []byte("v7")})},
		{name: "Discard", do: func(ctx context.Context, s driver.Store) error {
			more := part
			more.ID = session + ".7"
			_, err := s.Discard(ctx, []driver.Claim{part, more})
			return err
		}},
		{name: "Extend", do: func(ctx context.Context, s driver.Store) error {
			_, err := storecmd.Extend(ctx, s, lease, 3_600_000_000_000)
			return err
		}},
		{name: "Publish", do: func(ctx context.Context, s driver.Store) error {
			_, err := storecmd.Publish(ctx, s, claim, 1, []byte("10.0.0.7:80"))
			return err
		}},
		{name: "Resize", do: func(ctx context.Context, s driver.Store) error {
			_, err := storecmd.Resize(ctx, s, "workers", driver.KindSemaphore, 4, 8)
			return err
		}},
		{name: "Listen", do: listen(session)},
		{name: "Listen, to keys alone", do: listen("", "jobs/mails", "reports")},
		{name: "Notify", do: func(ctx context.Context, s driver.Store) error {
			return s.Notify(ctx, []driver.Notice{
				{Type: driver.NoticeGrant, Session: other, Key: claim.Key, Claim: other + ".4", Token: held.Token + 1024, Crowded: true, Address: 4},
				{Type: driver.NoticeChange, Key: claim.Key},
			})
		}},
		{name: "Load", do: func(ctx context.Context, s driver.Store) error { _, err := s.Load(ctx, claim.Key, 1000); return err }},
		{name: "Keys", do: func(ctx context.Context, s driver.Store) error {
			_, err := s.Keys(ctx, driver.KeyQuery{Prefix: "inv", Limit: 100})
			return err
		}},
		{name: "Keys, what a session holds of them", do: func(ctx context.Context, s driver.Store) error {
			_, err := s.Keys(ctx, driver.KeyQuery{Keys: []string{"invoices", "jobs/mails"}, Session: session})
			return err
		}},
		{name: "Members", do: func(ctx context.Context, s driver.Store) error {
			_, _, err := storecmd.Members(ctx, s, session, other)
			return err
		}},
		{name: "Members, all", do: func(ctx context.Context, s driver.Store) error { _, _, err := storecmd.Members(ctx, s); return err }},
		{name: "Liveness", do: func(ctx context.Context, s driver.Store) error {
			_, _, err := storecmd.Liveness(ctx, s, session, other)
			return err
		}},
		{name: "Observers", do: func(ctx context.Context, s driver.Store) error {
			_, err := storecmd.Observers(ctx, s, "reports", "", 1000)
			return err
		}},
		{name: "Queue", do: func(ctx context.Context, s driver.Store) error {
			_, err := storecmd.Queue(ctx, s, claim.Key)
			return err
		}},
		{name: "Sweep", do: func(ctx context.Context, s driver.Store) error {
			_, err := s.Sweep(ctx, session, driver.SweepState{}, 7*24*time.Hour)
			return err
		}},
	}
	var got bytes.Buffer
	fmt.Fprintln(&got, "The commands of dsync/mongo as they are sent to MongoDB, recorded by")
	fmt.Fprintln(&got, "dsync/mongo.TestCommandsOnFile. docs/protocol.md says what they do.")
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(honest)
		if _, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil); err != nil {
			t.Fatal(err)
		}
		opened := f.took() // all but the first and the last are commands of the probe
		fmt.Fprintf(&got, "\n== Open\n%s", asSent(t, opened[0].cmd))
		fmt.Fprintf(&got, "\n== Open, after a probe\n%s", asSent(t, opened[len(opened)-1].cmd))
		for _, c := range calls {
			f.script(nil)
			s := f.storeOn(client, nil, wellAnswered) // a new store remembers no keys from earlier calls
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if err := c.do(ctx, s); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			cancel()
			fmt.Fprintf(&got, "\n== %s\n", c.name)
			for _, sent := range f.took() {
				got.WriteString(asSent(t, sent.cmd))
			}
		}
		for _, together := range []struct {
			name string
			send func(b *bulkServer, n int)
		}{
			{"Acquire, short, together, of new keys, and as the keys are used, of used keys", func(b *bulkServer, n int) { b.acquire(t.Context(), n) }},
			{"Release, short, together, and the read if not all records meet the conditions", func(b *bulkServer, n int) { b.release(n, false) }},
		} {
			b := newBulkServer(t, nil)
			b.exist = true
			b.unmet = func(id string) bool { return together.name[0] == 'R' && id == "k/key 6" }
			together.send(b, atOnce+3)
			b.wg.Wait()
			fmt.Fprintf(&got, "\n== %s\n", together.name)
			for _, sent := range b.f.took()[atOnce:][:2] { // without those that go alone before and after
				got.WriteString(asSent(t, sent.cmd))
			}
		}
	})
	if os.Getenv("LEASEHOLD_WRITE") != "" {
		noErr(t, os.WriteFile(onFile, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(onFile)
	noErr(t, err)
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/commands.txt differs from the commands that are sent: write it with LEASEHOLD_WRITE=1, read the diff, and check docs/protocol.md, too")
	}
}

// A sending is one call of a method of a store. docs/commands.txt lists the commands that the call sends.
type sending struct {
	name string
	do   func(context.Context, driver.Store) error
}

// wellAnswered answers each command in such a way that the store's call succeeds.
func wellAnswered(c call) bson.D {
	if c.name == "findAndModify" && shortOf(c) != "" {
		claim := anyClaim.FindStringSubmatch(c.cmd.String())[1]
		kind := "mutex"
		if strings.Contains(c.cmd.String(), "$$term") {
			kind = "election"
		}
		return ok(e("value", bson.D{
			e("now", time.Now()), e("f", 2), e("y", kind), e("c", 1), e("t", int64(1_799_999_990_000*1024)), e("h", bson.A{bson.D{e("a", claim)}}),
		}))
	}
	if c.name == "find" {
		return ok(e("cursor", bson.D{e("id", int64(7)), e("ns", "app.leasehold.notices.0"), e("firstBatch", bson.A{})}))
	}
	if c.name == "findAndModify" {
		held := bson.D{e("a", "cs9a1h2n0ckk3v5p6q70.1"), e("s", "s"), e("w", 1), e("t", 1024), e("e", time.Now().Add(time.Hour))}
		return ok(e("value", bson.D{
			e("at", time.Now()), e("ttl", 1000), e("now", time.Now()), e("y", "semaphore"), e("c", 8), e("h", bson.A{held}),
		}))
	}
	return ok(e("n", 1), e("nModified", 1), e("cursor", bson.D{
		e("id", int64(0)), e("ns", "app.leasehold"),
		e("firstBatch", bson.A{bson.D{e("now", time.UnixMilli(1_800_000_000_000)), e("end", "s/z"), e("size", 3)}}),
	}))
}

// asSent returns a command as text, without the fields that the driver adds to every command.
func asSent(t *testing.T, cmd bson.Raw) string {
	t.Helper()
	var fields bson.D
	noErr(t, bson.Unmarshal(cmd, &fields))
	var own bson.D
	for _, f := range fields {
		switch f.Key {
		case "lsid", "$db", "$clusterTime", "$readPreference", "maxTimeMS":
		default:
			own = append(own, f)
		}
	}
	line, err := bson.MarshalExtJSON(own, false, false)
	noErr(t, err)
	var text bytes.Buffer
	noErr(t, json.Indent(&text, line, "", " "))
	return folded(text.String())
}

// folded writes each value on one line if it is short enough.
func folded(text string) string {
	const width = 140
	var b bytes.Buffer
	lines := bytes.Split([]byte(text), []byte("\n"))
	for i := 0; i < len(lines); {
		line := lines[i]
		depth := len(line) - len(bytes.TrimLeft(line, " "))
		last := line[len(line)-1]
		if last == '{' || last == '[' {
			joined := bytes.Clone(line)
			end := i + 1
			for ; end < len(lines); end++ {
				part := bytes.TrimLeft(lines[end], " ")
				joined = append(joined, ' ')
				joined = append(joined, part...)
				if len(lines[end])-len(part) == depth {
					break
				}
			}
			if len(joined) <= width {
				b.Write(append(joined, '\n'))
				i = end + 1
				continue
			}
		}
		b.Write(append(bytes.Clone(line), '\n'))
		i++
	}
	return b.String()
}
