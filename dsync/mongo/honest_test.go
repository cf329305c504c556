package mongo_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// honest answers a probe like a server that computes everything correctly and has not been probed before. Further calls
// for the same command return the same answer.
func honest(c call) bson.D { return c.honest() }

// An executor executes the probe's commands with package model. It recognizes a command by its arguments.
type executor struct {
	mu      sync.Mutex
	records map[string]kept // by _id
}

// The type kept is a record with fields that model.Record does not have.
type kept struct {
	model.Record
	observed time.Time
	listens  map[string]int // addresses by claim
}

func newExecutor() *executor { return &executor{records: make(map[string]kept)} }

// A claimDoc is a claim in a record.
type claimDoc struct {
	A, S    string
	W, K, T int64
	P       int
	L       bool
	B       []byte
	V       int64
	At, E   time.Time
}

func (d claimDoc) waiter() model.Waiter {
	return model.Waiter{Waiter: driver.Waiter{Claim: d.A, Session: d.S, Weight: d.W, Tick: d.K}, Yield: d.L, Value: string(d.B)}
}

func (d claimDoc) holder() model.Holder {
	h := driver.Holder{Claim: d.A, Session: d.S, Weight: d.W, Token: d.T, Since: d.At, Until: d.E, Yield: d.L}
	return model.Holder{Holder: h, Value: d.B, Seq: d.V}
}

func (db *executor) insert(doc bson.RawValue) {
	var d struct {
		ID      string `bson:"_id"`
		Y       driver.Kind
		C, T, N int64
		P       []int64
		H, Q    []claimDoc
		O       time.Time
	}
	if err := doc.Unmarshal(&d); err != nil {
		return
	}
	k := kept{Record: model.Record{Kind: d.Y, Limit: d.C, Former: d.P, Token: d.T, Term: d.N}, observed: d.O, listens: make(map[string]int)}
	for _, h := range d.H {
		k.Holders = append(k.Holders, h.holder())
	}
	for _, q := range d.Q {
		k.Queue, k.listens[q.A] = append(k.Queue, q.waiter()), q.P
	}
	db.records[d.ID] = k
}

func text(c call, path ...string) string { s, _ := c.cmd.Lookup(path...).StringValueOK(); return s }

func value(fields ...bson.E) bson.D { return ok(e("value", bson.D(fields))) }

func changed(yes bool) bson.D {
	if yes {
		return ok(e("n", 1), e("nModified", 1))
	}
	return ok(e("n", 1), e("nModified", 0))
}

func (db *executor) answer(c call) bson.D {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := time.Now().Truncate(time.Millisecond).UTC()
	id := text(c, "query", "_id")
	if id == "" {
		id = text(c, "updates", "0", "q", "_id")
	}
	heartbeat, _ := c.cmd.Lookup("query", "ttl", "$exists").BooleanOK() // or a Revoke; a Register wants no ttl
	switch {
	case c.name == "insert":
		for _, doc := range must(c.cmd.Lookup("documents").Array().Values()) {
			db.insert(doc)
		}
		return changed(true)
	case c.name == "delete":
		return changed(true)
	case c.name == "find": // the probe checks whether the collection is capped
		return refusal(2, "BadValue")
	case c.name == "aggregate":
		return db.load(text(c, "pipeline", "0", "$match", "_id"), now)
	case probeRecord(c) != "" && c.name == "update":
		return changed(true)
	case probeRecord(c) != "":
		return value(e("now", now))
	case shortOf(c) == "short acquire":
		return db.acquireShort(c, id, now)
	case shortOf(c) == "acquires together":
		return db.acquireTogether(c, now)
	case shortOf(c) == "releases together":
		return db.releaseTogether(c)
	case shortOf(c) == "short release", shortOf(c) == "short keep":
		return db.releaseShort(c, id, now)
	case shortOf(c) == "short hand-over":
		return db.handOver(c, id, now)
	case strings.HasSuffix(id, "/key") || strings.HasSuffix(id, "/short") || strings.HasSuffix(id, "/new") || strings.HasSuffix(id, "/many"):
		return db.edit(c, id, now)
	case strings.HasSuffix(id, "/living") && heartbeat && c.cmd.Lookup("fields", "p").IsNumber(): // Revoke
		return value(e("p", int64(3)), e("now", now))
	case strings.HasSuffix(id, "/living") && heartbeat:
		return value(e("at", now), e("rev", bson.A{bson.D{e("k", "\u00e9 b"), e("a", "$a.11")}}), e("now", now))
	case strings.HasSuffix(id, "/living") && strings.Contains(c.cmd.String(), `"$again"`):
		return refusal(11000, "DuplicateKey")
	case strings.HasSuffix(id, "/living"):
		return value(e("at", now), e("ttl", time.Hour.Milliseconds()), e("now", now))
	case strings.HasSuffix(id, "/unknown") && heartbeat:
		return ok(e("value", nil))
	case strings.HasSuffix(id, "/unknown"):
		return value(e("at", now), e("dead", true), e("now", now))
	}
	return refusal(59, "CommandNotFound")
}

// edit executes a pipeline.
func (db *executor) edit(c call, id string, now time.Time) bson.D {
	var args struct {
		Mine, Next string
		Claim      claimDoc
		Y          driver.Kind
		C, Keep    int64
		Seq        int64
		Until      time.Time
		Dead       []string
		Done       *struct {
			K int64
			B []byte
		}
		From  []int64
		Value []byte
	}
	path := []string{"update", "0"}
	if c.name == "update" {
		path = []string{"updates", "0", "u", "0"}
	}
	if err := c.cmd.Lookup(append(path, "$set", "_", "$literal")...).Unmarshal(&args); err != nil {
		return refusal(59, err.Error())
	}
	pipeline := strings.ReplaceAll(c.cmd.String(), " ", "")
	mine := driver.Claim{Key: "key", ID: args.Mine}
	var edit driver.Edit
	switch {
	case args.Claim.A != "":
		mine = driver.Claim{Key: "key", ID: args.Claim.A, Session: args.Claim.S, Kind: args.Y, Weight: args.Claim.W, Limit: args.C, Tick: args.Claim.K,
			First: strings.Contains(pipeline, `[["$_.claim"],"$q"]`), Yield: args.Claim.L, Value: string(args.Claim.B)}
		try := strings.Contains(pipeline, `["$$this.a","$_.claim.a"]`)
		edit.Acquire = &driver.Acquire{Claim: mine, Wait: !try, Expired: args.Dead, NotAfter: args.Until}
	case args.Value != nil:
		edit.Publish = &driver.Publish{Claim: mine, Seq: args.Seq, Value: args.Value}
	case args.Y != "":
		edit.Resize = &driver.Resize{Key: "key", Kind: args.Y, From: args.From[0], Limit: args.C}
	default:
		edit.Release = &driver.Release{Claim: mine, Keep: time.Duration(args.Keep) * time.Millisecond, Successor: args.Next}
		if args.Done != nil {
			edit.Release.Seal, edit.Release.Result = args.Done.K, args.Done.B
		}
	}
	k := db.records[id]
	_, holds := k.Holder(mine.ID)
	if l := edit.Release; l != nil && !holds && (k.Position(mine.ID) == 0 || l.Successor != "") {
		return ok(e("value", nil), e("n", 0), e("nModified", 0))
	}
	if c.name == "update" { // the release of the only claim
		if len(k.Queue) > 0 || !k.observed.IsZero() {
			return ok(e("n", 0), e("nModified", 0))
		}
	}
	k = k.listening(args.Claim)
	before := k
	after, did, err := k.Edit(edit, now)
	if err == nil {
		k.Record = after
	}
	if k.observed.Before(now) {
		k.observed = time.Time{}
	}
	db.records[id] = k
	if c.name == "update" {
		return changed(did.Changed)
	}
	if after, _ := c.cmd.Lookup("new").BooleanOK(); !after {
		k = before
	}
	return k.reply(c, mine.ID, now)
}

// listening returns k with the address of a claim that may join.
func (k kept) listening(d claimDoc) kept {
	k.listens = maps.Clone(k.listens)
	if k.listens == nil {
		k.listens = make(map[string]int)
	}
	k.listens[d.A] = d.P
	return k
}

// reply returns the fields of the record that c asks for.
func (k kept) reply(c call, mine string, now time.Time) bson.D {
	var reply bson.D
	fields := must(c.cmd.Lookup("fields").Document().Elements())
	for _, f := range fields {
		switch name := f.Key(); name {
		case "h":
			holders := k.Holders
			if granted := f.Value().String(); strings.Contains(granted, "$$this.at") {
				holders = slices.DeleteFunc(slices.Clone(holders), func(h model.Holder) bool {
					return !h.Since.Equal(now) && (h.Claim != mine || !strings.Contains(granted, mine))
				})
			}
			reply = append(reply, e("h", k.holders(holders)))
		case "h.a":
			ids := bson.A{}
			for _, h := range k.Holders {
				ids = append(ids, bson.D{e("a", h.Claim)})
			}
			reply = append(reply, e("h", ids))
		case "t":
			reply = append(reply, e("t", k.Token))
		case "f":
			reply = append(reply, e("f", 2))
		case "y":
			reply = append(reply, e("y", string(k.Kind)))
		case "c":
			reply = append(reply, e("c", k.Limit))
		case "n":
			reply = append(reply, e("n", k.Term))
		case "p":
			reply = append(reply, e("p", k.Former))
		case "at":
			reply = append(reply, e("at", k.LastChange))
		case "o":
			if !k.observed.IsZero() {
				reply = append(reply, e("o", k.observed))
			}
		case "done", "done.k":
			if k.Sealed > 0 {
				reply = append(reply, e("done", bson.D{e("k", k.Sealed), e("b", k.Result)}))
			}
		case "now":
			reply = append(reply, e("now", now))
		case "waiting":
			reply = append(reply, e("waiting", len(k.Queue)))
		case "position":
			reply = append(reply, e("position", k.Position(mine)))
		case "first":
			for _, first := range k.waiters(k.Queue[:min(1, len(k.Queue))]) {
				reply = append(reply, e("first", first))
			}
		case "ahead":
			ahead := k.Queue
			if i := k.Position(mine); i > 0 {
				ahead = ahead[:i-1]
			} else if strings.Contains(strings.ReplaceAll(f.Value().String(), " ", ""), `{"$numberInt":"1"}`) {
				ahead = ahead[:1]
			}
			reply = append(reply, e("ahead", k.waiters(ahead)))
		}
	}
	return ok(e("value", reply))
}

func (k kept) holders(holders []model.Holder) bson.A {
	a := bson.A{}
	for _, h := range holders {
		d := bson.D{e("a", h.Claim), e("s", h.Session), e("w", h.Weight), e("t", h.Token), e("at", h.Since), e("n", h.Term), e("p", k.listens[h.Claim]), e("l", h.Yield)}
		if !h.Until.IsZero() {
			d = append(d, e("e", h.Until))
		}
		if h.Value != nil {
			d = append(d, e("b", h.Value))
		}
		a = append(a, d)
	}
	return a
}

func (k kept) waiters(waiters []model.Waiter) bson.A {
	a := bson.A{}
	for _, w := range waiters {
		a = append(a, bson.D{e("a", w.Claim), e("s", w.Session), e("w", w.Weight), e("k", w.Tick), e("p", k.listens[w.Claim]), e("l", w.Yield)})
	}
	return a
}

func (db *executor) load(id string, now time.Time) bson.D {
	k := db.records[id]
	found := bson.D{
		e("now", now), e("h", k.holders(k.Holders)), e("t", k.Token), e("waiting", len(k.Queue)),
		e("y", string(k.Kind)), e("n", k.Term), e("c", k.Limit), e("p", k.Former), e("ahead", k.waiters(k.Queue)),
	}
	if k.Sealed > 0 {
		found = append(found, e("done", bson.D{e("k", k.Sealed), e("b", k.Result)}))
	}
	return cursor(bson.D{e("now", now), e("found", bson.A{found})})
}

// A short command makes its changes on a condition. The function condition returns the value at a path in it.
func condition(c call, start []string, path ...string) bson.RawValue {
	for _, changes := range changesOfShort {
		if v, err := c.cmd.LookupErr(slices.Concat(start, changes, path)...); err == nil {
			return v
		}
	}
	return bson.RawValue{}
}

func (db *executor) acquireShort(c call, id string, now time.Time) bson.D {
	k, exists := db.records[id]
	until, ok := condition(c, []string{"updates", "0", "u", "0"}, "$cond", "0", "$and", "2", "$lte", "1").TimeOK()
	if !ok { // it only makes a record
		if until = condition(c, []string{"updates", "0", "u", "0"}, "$cond", "0", "$lte", "1", "$literal", "2").Time(); k.Kind != "" || !k.observed.IsZero() {
			return notMade
		}
	}
	met, err := db.grant(id, c.shortGrant(), until, now)
	upsert, _ := c.cmd.Lookup("updates", "0", "upsert").BooleanOK()
	switch {
	case err != nil:
		return refusal(59, err.Error())
	case met && !exists:
		return made
	case !met && (!exists || !ok) && upsert:
		return notMade
	}
	return changed(met)
}

// grant replaces the record with that of a short Acquire, if it meets the conditions.
func (db *executor) grant(id string, granted bson.RawValue, until, now time.Time) (met bool, err error) {
	var d struct {
		Y    driver.Kind
		C, T int64
		H    []claimDoc
	}
	if err := granted.Unmarshal(&d); err != nil {
		return false, err
	}
	k := db.records[id]
	free := !k.InUse() && k.Sealed == 0 && k.Term == 0 && k.observed.IsZero()
	blank := k.Kind == ""
	if !free || !blank && (k.Kind != d.Y || k.Limit != 1) || k.Token > d.T-driver.TokenStep || now.After(until) {
		return false, nil
	}
	k = k.listening(d.H[0])
	k.Kind, k.Limit, k.Token, k.LastChange, k.Holders = d.Y, d.C, d.T, d.H[0].At, []model.Holder{d.H[0].holder()}
	db.records[id] = k
	return true, nil
}

// matchedBy returns the ids of the records that an update may change.
func matchedBy(c call) []string {
	ids := idsIn(c)
	if many, _ := c.cmd.Lookup("updates", "0", "multi").BooleanOK(); !many {
		return ids[:1]
	}
	return ids
}

// grantedTogether is the path to the records after the grants, in an update that acquires for many records.
var grantedTogether = []string{"updates", "0", "u", "0", "$replaceWith", "$let", "vars", "new", "$arrayElemAt", "0", "$literal"}

// acquireTogether finds what becomes of each record by its _id, in the lists that the pipeline has.
func (db *executor) acquireTogether(c call, now time.Time) bson.D {
	let := c.cmd.Lookup("updates", "0", "u", "0", "$replaceWith", "$let").Document()
	granted := must(c.cmd.Lookup(grantedTogether...).Array().Values())
	list, _ := let.Lookup("vars", "new", "$arrayElemAt", "1", "$indexOfArray", "0", "$literal").ArrayOK()
	ids, _ := list.Values()
	until, _ := let.Lookup("in", "$cond", "0", "$and", "3", "$lte", "1").TimeOK()
	n, modified := 0, 0
	for _, id := range matchedBy(c) {
		if _, exists := db.records[id]; !exists {
			continue
		}
		n++
		i := slices.IndexFunc(ids, func(v bson.RawValue) bool { return v.StringValue() == id })
		if i < 0 || granted[i].Document().Lookup("_id").StringValue() != id {
			return refusal(66, "ImmutableField")
		}
		met, err := db.grant(id, granted[i], until, now)
		if err != nil {
			return refusal(59, err.Error())
		}
		if met {
			modified++
		}
	}
	return ok(e("n", n), e("nModified", modified))
}

func (db *executor) releaseTogether(c call) bson.D {
	list, _ := c.cmd.Lookup("updates", "0", "u", "0", "$set", "h", "$cond", "0", "$and", "1", "$in", "1", "$literal").ArrayOK()
	held, _ := list.Values()
	n, modified := 0, 0
	for _, id := range matchedBy(c) {
		k, exists := db.records[id]
		if !exists {
			continue
		}
		n++
		isHeld := func(is bson.RawValue) bool { return k.soleHolder(is.Array()) }
		if k.Limit == 1 && len(k.Queue) == 0 && k.observed.IsZero() && slices.ContainsFunc(held, isHeld) {
			k.Holders = nil
			db.records[id] = k
			modified++
		}
	}
	return ok(e("n", n), e("nModified", modified))
}

func (db *executor) releaseShort(c call, id string, now time.Time) bson.D {
	cond := []string{"updates", "0", "u", "0", "$set", "h", "$cond"}
	is := c.cmd.Lookup(append(cond, "0", "$eq", "1", "$literal")...).Array()
	keep, keeps := c.cmd.Lookup(append(cond, "1", "0", "$mergeObjects", "1", "e", "$add", "1")...).AsInt64OK()
	k := db.records[id]
	met := len(k.Queue) == 0 && k.soleHolder(is)
	switch {
	case !met:
	case keeps && !k.Holders[0].Until.IsZero():
		met = false
	case keeps:
		k.Holders = slices.Clone(k.Holders)
		k.Holders[0].Until = now.Add(time.Duration(keep) * time.Millisecond)
	default:
		k.Holders = nil
	}
	db.records[id] = k
	return changed(met)
}

// soleHolder reports whether a condition names the only holder. The condition's list has the holder's claim in its
// first element, and the token in its second.
func (k kept) soleHolder(is bson.RawArray) bool {
	want := must(is.Values())
	return len(k.Holders) == 1 && len(want) > 1 && want[0].Array().Index(0).StringValue() == k.Holders[0].Claim && want[1].AsInt64() == k.Token
}

func (db *executor) handOver(c call, id string, now time.Time) bson.D {
	in := []string{"$let", "in"}
	var joins claimDoc
	until := now
	record := condition(c, []string{"update", "0"}, "$let", "vars", "queue", "$concatArrays", "1", "$literal", "0")
	eq := []string{"$cond", "0", "$eq", "1", "$literal"}
	if !record.IsZero() {
		if err := record.Unmarshal(&joins); err != nil {
			return refusal(59, err.Error())
		}
		in = append(in, "$let", "in")
		eq = []string{"$cond", "0", "$and", "0", "$eq", "1", "$literal"}
		until = condition(c, []string{"update", "0"}, slices.Concat(in, []string{"$cond", "0", "$and", "1", "$lte", "1"})...).Time()
	}
	is := condition(c, []string{"update", "0"}, slices.Concat(in, eq)...).Array()
	k := db.records[id].listening(joins)
	before := k
	if k.soleHolder(is) && !now.After(until) {
		queue := slices.Clone(k.Queue)
		if joins.A != "" {
			queue = append(queue, joins.waiter())
		}
		k.Token = condition(c, []string{"update", "0"}, slices.Concat(in, []string{"$cond", "1", "$cond", "1", "t"})...).AsInt64()
		k.Holders, k.LastChange = nil, now
		if len(queue) > 0 {
			next := claimDoc{A: queue[0].Claim, S: queue[0].Session, W: queue[0].Weight, T: k.Token, At: now}
			k.Holders, k.Queue = []model.Holder{next.holder()}, queue[1:]
		}
		db.records[id] = k
	}
	return before.reply(c, "", now)
}
