package mongo_test

import (
	"errors"
	"fmt"
	"slices"
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

// sentTo returns the names of the commands with their collections.
func sentTo(calls []call) (sent []string) {
	for _, c := range calls {
		on, _ := c.cmd.Lookup(c.name).StringValueOK()
		sent = append(sent, c.name+" "+on)
	}
	return sent
}

// Notify sends one insert to each collection. Before a store's first insert into a collection, Notify sends a command
// that creates the collection. Otherwise the insert would create one that is not capped.
func TestNotifyInserts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		notices := []driver.Notice{wake("a", 1, 4), change("k"), wake("b", 1, 16), wake("a", 2, 4)}
		for i, want := range [][]string{
			{
				"create leasehold.notices.16", "insert leasehold.notices.16", "create leasehold.notices.4", "insert leasehold.notices.4",
				"create leasehold.notices.0", "insert leasehold.notices.0",
			},
			{"insert leasehold.notices.16", "insert leasehold.notices.4", "insert leasehold.notices.0"},
		} {
			h.f.script(h.collections.answer)
			h.notify(notices...)
			calls := h.f.took()
			if got := sentTo(calls); !slices.Equal(got, want) {
				t.Errorf("time %d: sent %v, want %v", i+1, got, want)
			}
			for _, c := range calls {
				if w := c.cmd.Lookup("writeConcern", "w"); c.name == "insert" && w.Int32() != 1 {
					t.Errorf("the insert has w: %v, want 1", w)
				}
			}
		}
		var got []string
		for _, c := range []int{0, 4, 16} {
			for _, doc := range h.collections.collections[h.collection(c)].docs {
				var d bson.D
				noErr(t, bson.Unmarshal(doc, &d))
				got = append(got, fmt.Sprint(d[1:]))
			}
		}
		once := []string{`{"k":"k"}`, `{"to":"a","type":"wake","k":"k","a":"a.1"}`, `{"to":"a","type":"wake","k":"k","a":"a.2"}`}
		other := `{"to":"b","type":"wake","k":"k","a":"b.1"}`
		if want := []string{once[0], once[0], once[1], once[2], once[1], once[2], other, other}; !slices.Equal(got, want) {
			t.Errorf("inserted %v, want %v", got, want)
		}
	})
}

// Notify does not send notices that nobody can receive.
func TestNotifyNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		far := change("k")
		far.Address = 4
		h.f.script(h.collections.answer)
		h.notify()
		h.notify(wake("s", 1, 0), wake("s", 1, -1), wake("s", 1, 1001), far,
			driver.Notice{Type: driver.NoticeReady, Session: "s", Address: 3}, driver.Notice{Type: 99, Session: "s", Address: 3})
		if n := len(h.f.took()); n != 0 {
			t.Errorf("%d commands, want none", n)
		}
		h.notify(wake("s", 1, 1000))
		if got := sentTo(h.f.took()); !slices.Contains(got, "insert leasehold.notices.1000") {
			t.Errorf("sent %v, want an insert at the greatest address", got)
		}
	})
	for _, opt := range []dsyncmongo.Options{{PollOnly: true}, {ReadOnly: true}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHearing(t, nil, &opt)
			h.f.script(h.collections.answer)
			err := h.s.Notify(t.Context(), []driver.Notice{wake("s", 1, 3)})
			if opt.ReadOnly != errors.Is(err, driver.ErrRefused) || !opt.ReadOnly && err != nil {
				t.Errorf("ReadOnly %t: got %v, want ErrRefused if it is true, otherwise no error", opt.ReadOnly, err)
			}
			if n := len(h.f.took()); n != 0 {
				t.Errorf("%d commands, want none", n)
			}
		})
	}
}

// If the user may not create a collection, or may not insert into it, Notify sends nothing more to that collection
// after the first refusal. The log says once which right to grant. After a temporary error, the next Notify tries
// again.
func TestNotifyIsRefused(t *testing.T) {
	for _, command := range []string{"create", "insert"} {
		inBubble(t, command, func(t *testing.T) {
			h := newHearing(t, nil, nil)
			refuse := func(answer bson.D) { h.collections.change(func() { h.collections.instead[command] = answer }) }
			refuse(refusal(11602, "InterruptedDueToReplStateChange"))
			for range 2 {
				h.f.script(h.collections.answer)
				err := h.s.Notify(t.Context(), []driver.Notice{wake("s", 1, 3), wake("o", 1, 4)})
				if err == nil || errors.Is(err, driver.ErrRefused) {
					t.Errorf("interrupted: got %v, want a temporary error", err)
				}
				if n := strings.Count(fmt.Sprint(names(h.f.took())), command); n != 2 {
					t.Errorf("interrupted: %d commands %s, want one for each of the two collections", n, command)
				}
			}
			refuse(refusal(13, "Unauthorized"))
			h.f.script(h.collections.answer)
			for range 3 {
				if err := h.s.Notify(t.Context(), []driver.Notice{wake("s", 1, 3)}); !errors.Is(err, driver.ErrRefused) {
					t.Errorf("refused: got %v, want ErrRefused", err)
				}
			}
			if got := names(h.f.took()); !slices.Equal(got, []string{command}) {
				t.Errorf("sent %v, want one %s", got, command)
			}
			if n := strings.Count(h.log.String(), "level=WARN"); n != 1 || !strings.Contains(h.log.String(), "convertToCapped") {
				t.Errorf("%d warnings, want one that says what to grant: %s", n, h.log)
			}
		})
	}
}

// If no majority has confirmed a new collection, Notify inserts nothing into it and returns an error.
func TestNotifyIntoWhatAFailOverMayUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.collections.instead["create"] = ok(e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")}))
		for range 2 {
			h.f.script(h.collections.answer)
			if err := h.s.Notify(t.Context(), []driver.Notice{wake("s", 1, 3)}); err == nil {
				t.Error("no error")
			}
			if got := names(h.f.took()); !slices.Equal(got, []string{"create"}) {
				t.Errorf("sent %v, want only create", got)
			}
		}
	})
}

// All processes with the same NoticeCollections compute the same address for a session. The sessions are spread over
// all addresses.
func TestAddresses(t *testing.T) {
	testkit.Large(t)
	const each = 40
	for _, n := range []int{0, 1, 16, 1000} {
		inBubble(t, fmt.Sprint(n), func(t *testing.T) {
			a := newHearing(t, nil, &dsyncmongo.Options{NoticeCollections: n})
			b := newHearing(t, nil, &dsyncmongo.Options{NoticeCollections: n})
			want := n
			if n == 0 {
				want = 64
			}
			addresses := make(map[int]int)
			for i := range min(each*want, 2000) {
				session := fmt.Sprint("cs9a1h2n0ckk3v5p", i)
				address := a.addressOf(session)
				if address < 1 || address > want || b.addressOf(session) != address {
					t.Fatalf("%s: address %d; want it from 1 to %d, and the same in both stores", session, address, want)
				}
				addresses[address]++
			}
			if n <= 16 {
				for address, sessions := range addresses {
					if len(addresses) != want || sessions < each/3 {
						t.Errorf("%d of %d addresses are used, and %d sessions have address %d", len(addresses), want, sessions, address)
					}
				}
			}
		})
	}
}

// The session's address is in its record and in all its claims, even in claims of short acquires.
func TestAddressesAreWritten(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			s := f.store(&dsyncmongo.Options{PollOnly: off}, granting)
			ctx := t.Context()
			if _, err := s.Register(ctx, driver.Member{ID: "s", TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= 2; n++ {
				c := mutexClaim(n)
				c.Limit = int64(3 - n) // a claim with limit 2 needs the pipeline
				if _, _, err := storecmd.Acquire(ctx, s, c, true, nil, time.Now()); err != nil {
					t.Fatal(err)
				}
				if found, _, err := storecmd.Release(ctx, s, mutexClaim(n), driver.Release{}); err != nil || !found {
					t.Fatal(found, err)
				}
			}
			calls := f.took()
			record, recorded := calls[0].cmd.Lookup("update", "0", "$set", "p").AsInt64OK()
			claim, claimed := calls[1].cmd.Lookup("update", "0", "$set", "_", "$literal", "claim", "p").AsInt64OK()
			short, shortly := calls[3].shortGrant("h", "0", "p").AsInt64OK()
			if shortOf(calls[3]) != "short acquire" {
				t.Fatalf("sent %v, want a short acquire", calls[3].cmd)
			}
			if off && (recorded || claimed || shortly) || !off && (record < 1 || claim != record || short != record) {
				t.Errorf("PollOnly %t: the session's record has address %d, its claim %d, and its claim in a short acquire %d; want the same address in all, or none with PollOnly", off, record, claim, short)
			}
		})
	}
}
