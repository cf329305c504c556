package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/rs/xid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// probePrefix begins the _id of records that a probe makes and removes.
const probePrefix = "p/"

// probe learns what the server is, and tries the store's own commands on records
// of its own, in one pass that has a bit of everything in it: a dead holder, one
// whose end has come, a dead waiter, a fixed lease, weights, and a line that must
// not be overtaken, terms and a value. About ten commands.
func (s *Store) probe(ctx context.Context) error {
	ctx = bare{ctx}
	v, err := s.hello(ctx)
	if err != nil {
		return fmt.Errorf("mongo: hello: %w", err)
	}
	s.server = v

	p := prober{Store: s, prefix: probePrefix + xid.New().String() + "/"}
	err = p.run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmLimit)
	defer cancel()
	if _, bad := s.write(ctx, p.cleanUp()); bad != nil {
		err = errors.Join(err, failure("probe: delete", bad))
	}
	if err != nil {
		return err
	}
	s.report()
	return nil
}

type prober struct {
	*Store
	prefix string
}

// twins are pairs of names that a collation may take for one: case, accents
// composed and not, width of numbers, punctuation.
func (p *prober) twins() []string {
	return []string{"A", "a", "\u00e9", "e\u0301", "1", "01", "a b", "ab"}
}

func (p *prober) id(name string) string { return p.prefix + name }

func (p *prober) cleanUp() bson.D {
	ids := []string{p.id("key"), p.id("living"), p.id("unknown")}
	for _, name := range p.twins() {
		ids = append(ids, p.id(name))
	}
	return bson.D{
		e("delete", p.collection),
		e("deletes", bson.A{bson.D{
			e("q", bson.D{e("_id", bson.D{e("$in", ids)})}), e("limit", 0),
		}}),
	}
}

func (p *prober) run(ctx context.Context) error {
	if err := p.insert(ctx); err != nil {
		return err
	}
	if err := p.keys(ctx); err != nil {
		return err
	}
	return p.sessions(ctx)
}

// insert makes the record that the other commands start from.
func (p *prober) insert(ctx context.Context) error {
	past := time.UnixMilli(1)
	record := bson.D{
		e("_id", p.id("key")), e("f", formatVersion), e("y", string(dsync.KindElection)), e("c", int64(2)),
		e("t", int64(7)), e("n", int64(3)), e("g", "old.1:7:3,"),
		e("v", bson.D{e("t", int64(5)), e("b", bson.Binary{Data: []byte("the dead's")})}),
		e("h", bson.A{
			bson.D{e("a", "dead.1"), e("s", "dead"), e("w", int64(1)), e("t", int64(5)), e("at", past)},
			bson.D{e("a", "over.1"), e("s", "over"), e("w", int64(1)), e("t", int64(6)), e("at", past), e("d", int64(1)), e("e", past)},
		}),
		e("q", bson.A{
			bson.D{e("a", "dead.2"), e("s", "dead"), e("w", int64(1))},
			bson.D{e("a", "one.1"), e("s", "one"), e("w", int64(1)), e("d", int64(probeLease/time.Millisecond))},
			bson.D{e("a", "two.1"), e("s", "two"), e("w", int64(2))},
		}),
	}
	docs := bson.A{record}
	for _, name := range p.twins() {
		docs = append(docs, bson.D{e("_id", p.id(name))})
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

const (
	probeLease = time.Hour
	probeValue = "$t"
)

func (p *prober) keys(ctx context.Context) error {
	mine := dsync.Claim{Key: "probe", ID: "$mine.1", Session: "$mine", Kind: dsync.KindElection, Weight: 1, Limit: 2}
	st, err := p.acquire(ctx, p.id("key"), mine, true, []string{"dead", "$dead"}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return failure("probe: acquire", err)
	}
	if err := p.acquired(st); err != nil {
		return fmt.Errorf("mongo: probe: %w: the server does not compute acquire as MongoDB does: %w; got %+v", dsync.ErrRefused, err, st)
	}
	found, err := p.release(ctx, p.id("key"), dsync.Claim{ID: "one.1"}, dsync.Outcome{})
	if err != nil {
		return failure("probe: release", err)
	}
	held, err := p.publish(ctx, p.id("key"), dsync.Claim{ID: "two.1"}, []byte(probeValue))
	if err != nil {
		return failure("probe: publish", err)
	}
	after, err := p.load(ctx, p.id("key"), "probe")
	if err != nil {
		return failure("probe: load", err)
	}
	if err := p.released(st, after, found); err != nil {
		return fmt.Errorf("mongo: probe: %w: the server does not compute release as MongoDB does: %w; got %+v", dsync.ErrRefused, err, after)
	}
	if !held || string(after.Value) != probeValue {
		return fmt.Errorf("mongo: probe: %w: the server does not compute publish as MongoDB does: held %t, value %q", dsync.ErrRefused, held, after.Value)
	}
	return nil
}

// acquired checks the state in which the claim "$mine.1" found itself.
func (p *prober) acquired(st dsync.State) error {
	if len(st.Holders) != 1 {
		return errors.New("one holder was to be left")
	}
	h, now := st.Holders[0], st.Now
	switch {
	case h.Claim != "one.1" || h.Session != "one" || h.Weight != 1:
		return errors.New("the first living claim in line was to hold")
	case h.Token != now.UnixMilli()*tokenStep || st.Token != h.Token:
		return errors.New("the token was to be the server's time")
	case !h.Since.Equal(now) || !h.Until.Equal(now.Add(probeLease)):
		return errors.New("the lease was to begin at the server's time")
	case st.Place != 2 || st.Waiting != 2 || st.Kind != dsync.KindElection || st.Limit != 2:
		return errors.New("mine was to be second in line")
	case !slices.Equal(st.Ahead, []dsync.Waiter{{Claim: "two.1", Session: "two", Weight: 2}}):
		return errors.New("one claim was to be ahead of mine")
	case st.Term != 4 || st.Value != nil:
		return errors.New("the term was to be the next, and nothing published in it")
	}
	return nil
}

// released checks what became of that after the holder's release.
func (p *prober) released(before, st dsync.State, found bool) error {
	switch {
	case !found:
		return errors.New("the claim was to be found")
	case len(st.Holders) != 1 || st.Holders[0].Claim != "two.1":
		return errors.New("the next in line was to hold, and alone, since it takes all there is")
	case st.Token < before.Token+tokenStep || st.Holders[0].Token != st.Token:
		return errors.New("the token was to be greater")
	case st.Term != before.Term+1:
		return errors.New("the term was to be the next")
	case st.Waiting != 1 || st.Ahead[0].Claim != "$mine.1":
		return errors.New("mine was to stay in line")
	case st.Now.Before(before.Now) || st.Now.Sub(before.Now) > probeLease:
		return errors.New("the times of two commands don't fit together")
	}
	return nil
}

func (p *prober) sessions(ctx context.Context) error {
	query := func(name string) bson.D { return bson.D{e("_id", p.id(name))} }
	m := dsync.Member{TTL: probeLease, Host: "$$NOW", Meta: map[string]string{"$x.y": "$z"}}
	if _, err := p.register(ctx, query("living"), m); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	left, err := p.bury(ctx, query("living"))
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left <= 0 || left > probeLease {
		return fmt.Errorf("mongo: probe: %w: the server does not compute bury as MongoDB does: a new session has %v left of %v", dsync.ErrRefused, left, probeLease)
	}
	if left, err = p.bury(ctx, query("unknown")); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left != 0 {
		return fmt.Errorf("mongo: probe: %w: the server does not compute bury as MongoDB does: an unknown session has %v left", dsync.ErrRefused, left)
	}
	if _, err := p.heartbeat(ctx, query("unknown")); !errors.Is(err, dsync.ErrSessionDead) {
		return fmt.Errorf("mongo: probe: %w: the server does not compute heartbeat as MongoDB does: a dead session's heartbeat returned %v", dsync.ErrRefused, err)
	}
	return nil
}
