package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	probeLease   = time.Hour
	probeValue   = "$t"
	probeResult  = "$$NOW"
	probeAgain   = "$again" // the name of a session that is registered twice
	probeAddress = 7        // the address in claims that get notices
	probeTick    = 5        // the tick that the key is sealed up to

	// probeToken is the smallest token that is a step greater than the record's last token, 7.
	probeToken = 7 + driver.TokenStep
)

// probeRevoked is a revocation that the session's record has from the start.
var probeRevoked = driver.Revocation{Key: "$a", Claim: "$a.1"}

// insert creates the records that the other commands start from. Each record has a time, so that a sweep finds it if
// the process dies before removing it: see leftProbes.
func (p *prober) insert(ctx context.Context) error {
	past := time.UnixMilli(1)
	made := e("at", p.server.now)
	record := bson.D{
		e("_id", p.id("key")), made, e("f", formatVersion), e("y", string(driver.KindElection)),
		e("c", int64(2)), e("p", bson.A{int64(9)}),
		e("t", int64(7)), e("n", int64(3)), e("o", past),
		e("h", bson.A{
			bson.D{e("a", "dead.1"), e("s", "dead"), e("w", int64(1)), e("l", true), e("t", int64(5)), e("at", past), e("v", int64(1)), e("b", bson.Binary{Data: []byte("the dead's")})},
			bson.D{e("a", "over.1"), e("s", "over"), e("w", int64(1)), e("t", int64(6)), e("at", past), e("d", int64(1)), e("e", past)},
		}),
		e("q", bson.A{
			bson.D{e("a", "dead.2"), e("s", "dead"), e("w", int64(1))},
			bson.D{e("a", "one.1"), e("s", "one"), e("w", int64(2)), e("p", int64(probeAddress)), e("d", int64(probeLease/time.Millisecond)), e("l", true), e("b", bson.Binary{Data: []byte(probeValue)})},
			bson.D{e("a", "two.1"), e("s", "two"), e("w", int64(2)), e("p", int64(probeAddress)), e("k", int64(probeTick))},
			bson.D{e("a", "three.1"), e("s", "three"), e("w", int64(1)), e("p", int64(probeAddress)), e("k", int64(probeTick))},
			bson.D{e("a", "later.1"), e("s", "later"), e("w", int64(2)), e("k", int64(probeTick+2))},
		}),
	}
	short := bson.D{
		e("_id", p.id("short")), made, e("f", formatVersion), e("y", string(driver.KindMutex)), e("c", int64(1)),
		e("t", int64(7)), e("h", bson.A{}), e("q", bson.A{}),
	}
	docs := bson.A{record, short, bson.D{e("_id", p.id("living")), made, e("rev", bson.A{revocationRecord(probeRevoked)})}}
	for _, name := range p.twins() {
		docs = append(docs, bson.D{e("_id", p.id(name)), made})
	}
	_, err := p.write(ctx, bson.D{e("insert", p.collection), e("documents", docs)})
	if hasCode(err, codeDuplicateKey) {
		return fmt.Errorf("mongo: probe: %w: the collection %s has a collation that considers different keys equal; create it without a collation: %w",
			driver.ErrRefused, p.collection, err)
	}
	if err != nil {
		return failure("probe: insert", err)
	}
	return nil
}

// key tries the commands on a key. First, claim one.1 holds all of the key. Then two.1 and three.1 hold it together,
// after a Resize to a greater limit. Then two.1 seals it, which leaves two of three waiters.
func (p *prober) key(ctx context.Context) error {
	id := p.id("key")
	mine := driver.Claim{Key: "probe", ID: "$mine.1", Session: "$mine", Kind: driver.KindElection, Weight: 2, Limit: 9, Tick: probeTick + 1}
	first, err := p.acquire(ctx, id, driver.Acquire{Claim: mine, Wait: true, Expired: []string{"dead", "$dead"}, NotAfter: never})
	if err != nil {
		return failure("probe: acquire", err)
	}
	one := first.state("probe")
	if err := cmp.Or(acquired(one), notified(first.grants("probe", mine.ID), one.Holders, "one.1"), dated(&first)); err != nil {
		return wrong("acquire", err, first)
	}
	r, err := p.resize(ctx, id, driver.Resize{Kind: mine.Kind, From: 8, Limit: 3})
	if err != nil {
		return failure("probe: resize", err)
	}
	if r.Kind != string(mine.Kind) || r.Limit != 3 || !slices.Equal(r.Former, []int64{9, 8, 2}) || dated(&r) != nil {
		return wrong("resize", errors.New("want limit 3, after 9, 8 and 2"), r)
	}

	found, next, err := p.keepAndRelease(ctx, id)
	if err != nil {
		return err
	}
	published, held, err := p.publish(ctx, id, driver.Publish{Claim: driver.Claim{ID: "two.1"}, Seq: 1, Value: []byte(probeValue)})
	if err != nil {
		return failure("probe: publish", err)
	}
	mine.ID, mine.First, mine.Tick = "$mine.2", true, probeTick
	second, err := p.acquire(ctx, id, driver.Acquire{Claim: mine, Wait: true, NotAfter: never})
	if err != nil {
		return failure("probe: acquire", err)
	}
	both := second.state("probe")
	if err := cmp.Or(released(one, both, found), notified(next.grants("probe", "one.1"), both.Holders, "two.1", "three.1"), dated(&next)); err != nil {
		return wrong("release", err, both)
	}
	if !held || string(both.Value) != probeValue || !near(published.Now, next.Now) {
		return wrong("publish", fmt.Errorf("want the value %q of a holder", probeValue), fmt.Sprintf("held %t, value %q", held, both.Value))
	}
	return p.seal(ctx, id, both, mine)
}

// keepAndRelease makes one.1 keep the key for a while and then release it. It also checks that the release for keys
// without waiters changes nothing here, since others wait.
func (p *prober) keepAndRelease(ctx context.Context, id string) (found bool, next keyRecord, err error) {
	c := driver.Claim{Key: "probe", ID: "one.1"}
	l := driver.Release{Claim: c, Keep: probeLease / 2}
	kept, found, err := p.release(ctx, id, l)
	if err != nil {
		return false, keyRecord{}, failure("probe: release", err)
	}
	woken := driver.Notice{Type: driver.NoticeWake, Session: "two", Key: "probe", Claim: "two.1", Address: probeAddress}
	if got := kept.released(l); !found || !slices.Equal(got, []driver.Notice{woken}) {
		return false, keyRecord{}, wrong("release", errors.New("want the first in the queue woken when a holder keeps the key"), kept)
	}
	alone, _, err := p.releaseAlone(ctx, id, c, false)
	if err != nil {
		return false, keyRecord{}, failure("probe: release", err)
	}
	if alone {
		return false, keyRecord{}, wrong("release", errors.New("want nothing released, since others are in the queue"), alone)
	}
	if next, found, err = p.release(ctx, id, driver.Release{Claim: c}); err != nil {
		return false, keyRecord{}, failure("probe: release", err)
	}
	return found, next, nil
}

// seal makes two.1 seal the key. Then a claim like late, whose tick is over, requests the key. The request
// removes later.1, whose session has expired, from the queue. Then three.1 releases the key.
func (p *prober) seal(ctx context.Context, id string, before driver.State, late driver.Claim) error {
	was, found, err := p.release(ctx, id, driver.Release{Claim: driver.Claim{ID: "two.1"}, Seal: probeTick, Result: []byte(probeResult)})
	if err != nil {
		return failure("probe: seal", err)
	}
	late.ID, late.First = "$mine.3", false
	after, err := p.acquire(ctx, id, driver.Acquire{Claim: late, Wait: true, Expired: []string{"later"}, NotAfter: never})
	if err != nil {
		return failure("probe: acquire", err)
	}
	if after.Position != 0 || after.Done == nil {
		return wrong("acquire", errors.New("want a refusal of a claim whose tick is over"), after)
	}
	done, err := p.load(ctx, id, "probe", maxShown)
	if err != nil {
		return failure("probe: load", err)
	}
	if err := sealed(before, done, found); err != nil {
		return wrong("seal", err, done)
	}
	if len(was.Ahead) != 3 || was.Ahead[0].Claim != "$mine.2" || was.Ahead[1].Claim != "$mine.1" || was.Done != nil || len(was.Holders) != 2 {
		return wrong("seal", errors.New("want the holders and the queue before it in the reply"), was)
	}
	if found, _, err = p.releaseAlone(ctx, id, driver.Claim{ID: "three.1"}, false); err != nil {
		return failure("probe: release", err)
	}
	if !found {
		return wrong("release", errors.New("want the only holder found"), found)
	}
	return nil
}

// notified checks that the command granted the key to exactly the given claims, and that the notices say so.
func notified(notices []driver.Notice, holders []driver.Holder, claims ...string) error {
	ok := len(notices) == len(holders) && len(holders) == len(claims)
	for i, n := range notices {
		ok = ok && n.Claim == claims[i] && n.Session+".1" == n.Claim && n.Token == holders[i].Token &&
			n.Term >= 4 && n.Crowded && n.Address == probeAddress
	}
	if !ok {
		return errors.New("want the grants in the reply")
	}
	return nil
}

// dated checks that the record has the time of this command, and no longer has the mark of an observer.
func dated(r *keyRecord) error {
	if !r.At.Equal(r.Now) || !r.Observed.IsZero() {
		return errors.New("want the time of the change in the record")
	}
	return nil
}

// near reports whether the times of two successive commands are plausible. On a sharded cluster they may come from
// two routers, and the second router's clock may be behind.
func near(a, b time.Time) bool { return b.Sub(a).Abs() <= probeLease }

// acquired checks the state in the reply to the Acquire of "$mine.1".
func acquired(st driver.State) error {
	if len(st.Holders) != 1 {
		return errors.New("want one holder")
	}
	h, now := st.Holders[0], st.Now
	switch {
	case h.Claim != "one.1" || h.Session != "one" || h.Weight != 2 || !h.Yield:
		return errors.New("want the key held by the first claim in the queue whose session has not expired")
	case h.Token != now.UnixMilli()*driver.TokenStep || st.Token != h.Token+driver.TokenRoom-driver.TokenStep:
		return errors.New("want the server's time as the token, with room behind it")
	case !h.Since.Equal(now) || !h.Until.IsZero():
		return errors.New("want a hold that begins at the server's time, without an end")
	case st.Position != 3 || st.Waiting != 4 || st.Kind != driver.KindElection || st.Limit != 2:
		return errors.New("want mine third in the queue, ahead of one with a later tick")
	case !slices.Equal(st.WaitersAhead, []driver.Waiter{
		{Claim: "two.1", Session: "two", Weight: 2}, {Claim: "three.1", Session: "three", Weight: 1},
	}):
		return errors.New("want two claims ahead of mine")
	case st.Term != 4 || string(st.Value) != probeValue:
		return fmt.Errorf("want the next term, with the value %q", probeValue)
	}
	return nil
}

// released checks the state after the holder's release.
func released(before, st driver.State, found bool) error {
	h := st.Holders
	switch {
	case !found:
		return errors.New("want the claim found")
	case len(h) != 2 || h[0].Claim != "two.1" || h[1].Claim != "three.1":
		return errors.New("want the key held by the next two in the queue")
	case h[0].Token < before.Holders[0].Token+driver.TokenRoom || h[1].Token != h[0].Token+driver.TokenStep || st.Token != h[1].Token:
		return errors.New("want greater tokens, with room between them")
	case st.Term != before.Term+2:
		return errors.New("want the term to grow by two")
	case st.Waiting != 3 || st.Position != 1:
		return errors.New("want mine in the queue, behind one that goes first")
	case !near(before.Now, st.Now):
		return errors.New("want times of two commands that are close together")
	}
	return nil
}

// sealed checks the state after the first holder's seal.
func sealed(before, st driver.State, found bool) error {
	switch {
	case !found:
		return errors.New("want the claim found")
	case st.Sealed != probeTick || string(st.Value) != probeResult:
		return fmt.Errorf("want the key sealed up to %d with %q", probeTick, probeResult)
	case len(st.Holders) != 2 || st.Holders[0].Claim != "three.1" || st.Holders[1].Claim != "$mine.1" || st.Waiting != 0:
		return errors.New("want the other holder to stay, the waiter with a later tick granted, and no other waiter")
	case st.Holders[1].Token < before.Token+driver.TokenStep || st.Token != st.Holders[1].Token:
		return errors.New("want a greater token")
	}
	return nil
}
