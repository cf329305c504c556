package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	probeLease  = time.Hour
	probeValue  = "$t"
	probeResult = "$$NOW"
	probeAgain  = "$again" // the name of a session whose id is known

	// probeToken is the first that leaves the room of one behind the record's last, 7.
	probeToken = 7 + tokenStep
)

// probeRevoked stands for the session from the start.
var probeRevoked = dsync.Revocation{Key: "$a", Claim: "$a.1"}

// insert makes the records that the other commands start from. Each has a time, by
// which a sweep finds it if nobody is left to remove it: see leftProbes.
func (p *prober) insert(ctx context.Context) error {
	past := time.UnixMilli(1)
	made := e("at", p.server.now)
	record := bson.D{
		e("_id", p.id("key")), made, e("f", formatVersion), e("y", string(dsync.KindElection)),
		e("c", int64(2)), e("p", bson.A{int64(9)}),
		e("t", int64(7)), e("n", int64(3)), e("g", "old.1:7:3,"), e("r", "dead.1,"),
		e("v", bson.D{e("t", int64(5)), e("s", int64(1)), e("b", bson.Binary{Data: []byte("the dead's")})}),
		e("h", bson.A{
			bson.D{e("a", "dead.1"), e("s", "dead"), e("w", int64(1)), e("l", true), e("t", int64(5)), e("at", past)},
			bson.D{e("a", "over.1"), e("s", "over"), e("w", int64(1)), e("t", int64(6)), e("at", past), e("d", int64(1)), e("e", past)},
		}),
		e("q", bson.A{
			bson.D{e("a", "dead.2"), e("s", "dead"), e("w", int64(1))},
			bson.D{e("a", "one.1"), e("s", "one"), e("w", int64(2)), e("d", int64(probeLease/time.Millisecond)), e("l", true)},
			bson.D{e("a", "two.1"), e("s", "two"), e("w", int64(2))},
			bson.D{e("a", "three.1"), e("s", "three"), e("w", int64(1))},
		}),
	}
	short := bson.D{
		e("_id", p.id("short")), made, e("f", formatVersion), e("y", string(dsync.KindMutex)), e("c", int64(1)),
		e("t", int64(7)), e("h", bson.A{}), e("q", bson.A{}),
	}
	docs := bson.A{record, short, bson.D{e("_id", p.id("living")), made, e("rev", revocation(probeRevoked)+",")}}
	for _, name := range p.twins() {
		docs = append(docs, bson.D{e("_id", p.id(name)), made})
	}
	_, err := p.write(ctx, bson.D{e("insert", p.collection), e("documents", docs)})
	if hasCode(err, codeDuplicateKey) {
		return fmt.Errorf("mongo: probe: %w: the collection %s has a collation that takes different keys for the same; make it without one: %w",
			dsync.ErrRefused, p.collection, err)
	}
	if err != nil {
		return failure("probe: insert", err)
	}
	return nil
}

// key has one.1 hold all of the key, then two.1 and three.1 together of a greater
// limit, of which two.1 seals it.
func (p *prober) key(ctx context.Context) error {
	id := p.id("key")
	mine := dsync.Claim{Key: "probe", ID: "$mine.1", Session: "$mine", Kind: dsync.KindElection, Weight: 2, Limit: 9}
	until := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	one, _, err := p.acquire(ctx, id, mine, true, []string{"dead", "$dead"}, until)
	if err != nil {
		return failure("probe: acquire", err)
	}
	if err := acquired(one); err != nil {
		return wrong("acquire", err, one)
	}

	r, err := p.resize(ctx, id, mine.Kind, 8, 3)
	if err != nil {
		return failure("probe: resize", err)
	}
	if r.Kind != string(mine.Kind) || r.Limit != 3 || !slices.Equal(r.Former, []int64{9, 8, 2}) {
		return wrong("resize", errors.New("the limit was to be 3, after 9, 8 and 2"), r)
	}
	kept, err := p.release(ctx, id, dsync.Claim{ID: "one.1"}, dsync.Outcome{Keep: probeLease / 2})
	if err != nil {
		return failure("probe: release", err)
	}
	found, err := p.release(ctx, id, dsync.Claim{ID: "one.1"}, dsync.Outcome{})
	if err != nil {
		return failure("probe: release", err)
	}
	held, err := p.publish(ctx, id, dsync.Claim{ID: "two.1"}, 1, []byte(probeValue))
	if err != nil {
		return failure("probe: publish", err)
	}
	mine.ID, mine.First = "$mine.2", true
	both, _, err := p.acquire(ctx, id, mine, true, nil, until)
	if err != nil {
		return failure("probe: acquire", err)
	}
	if err := released(one, both, kept && found); err != nil {
		return wrong("release", err, both)
	}
	if !held || string(both.Value) != probeValue {
		return wrong("publish", fmt.Errorf("the value was to be %q of one who holds", probeValue), fmt.Sprintf("held %t, value %q", held, both.Value))
	}

	if found, err = p.release(ctx, id, dsync.Claim{ID: "two.1"}, dsync.Outcome{Seal: true, Result: []byte(probeResult)}); err != nil {
		return failure("probe: seal", err)
	}
	done, err := p.load(ctx, id, "probe", maxShown)
	if err != nil {
		return failure("probe: load", err)
	}
	if err := sealed(both, done, found); err != nil {
		return wrong("seal", err, done)
	}
	return nil
}

// acquired checks the state in which the claim "$mine.1" found itself.
func acquired(st dsync.State) error {
	if len(st.Holders) != 1 {
		return errors.New("one holder was to be left")
	}
	h, now := st.Holders[0], st.Now
	switch {
	case h.Claim != "one.1" || h.Session != "one" || h.Weight != 2 || !h.Yield:
		return errors.New("the first living claim in line was to hold")
	case h.Token != now.UnixMilli()*tokenStep || st.Token != h.Token+tokenRoom-tokenStep:
		return errors.New("the token was to be the server's time, with room behind it")
	case !h.Since.Equal(now) || !h.Until.Equal(now.Add(probeLease)):
		return errors.New("the lease was to begin at the server's time")
	case st.Place != 3 || st.Waiting != 3 || st.Kind != dsync.KindElection || st.Limit != 2:
		return errors.New("mine was to be third in line")
	case !slices.Equal(st.Ahead, []dsync.Waiter{
		{Claim: "two.1", Session: "two", Weight: 2}, {Claim: "three.1", Session: "three", Weight: 1},
	}):
		return errors.New("two claims were to be ahead of mine")
	case st.Term != 4 || st.Value != nil:
		return errors.New("the term was to be the next, and nothing published in it")
	}
	return nil
}

// released checks what became of that after the holder's release.
func released(before, st dsync.State, found bool) error {
	h := st.Holders
	switch {
	case !found:
		return errors.New("the claim was to be found")
	case len(h) != 2 || h[0].Claim != "two.1" || h[1].Claim != "three.1":
		return errors.New("the next two in line were to hold, once the first of them fitted")
	case h[0].Token < before.Holders[0].Token+tokenRoom || h[1].Token != h[0].Token+tokenStep || st.Token != h[1].Token:
		return errors.New("the tokens were to be greater, and to leave room")
	case st.Term != before.Term+2:
		return errors.New("the term was to be the next but one")
	case st.Waiting != 2 || st.Place != 1:
		return errors.New("mine was to stay in line, behind another that goes first")
	case st.Now.Before(before.Now) || st.Now.Sub(before.Now) > probeLease:
		return errors.New("the times of two commands don't fit together")
	}
	return nil
}

// sealed checks what became of that after the first holder's seal.
func sealed(before, st dsync.State, found bool) error {
	switch {
	case !found:
		return errors.New("the claim was to be found")
	case !st.Sealed || string(st.Value) != probeResult || st.Token != before.Holders[0].Token:
		return fmt.Errorf("the key was to be sealed with %q and the holder's token", probeResult)
	case len(st.Holders) != 1 || st.Holders[0].Claim != "three.1" || st.Waiting != 0:
		return errors.New("the other holder was to stay, and nobody to wait")
	}
	return nil
}
