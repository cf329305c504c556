package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/rs/xid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// probePrefix begins the _id of records that a probe creates and removes.
const probePrefix = "p/"

// probe asks the server what it is. Unless the server is known to have passed the probe, it then tries the store's
// own commands on the server. A server that emulates MongoDB may change while its version stays the same, so a
// portable server is tried each time. For a read-only store, probe only asks what the server is.
func (s *store) probe(ctx context.Context) error {
	ctx = noValues{ctx}
	v, err := s.hello(ctx)
	if err != nil {
		return failure("hello", err)
	}
	s.server = v
	switch {
	case s.readOnly:
	case v.portable:
		err = s.tryCommands(ctx)
	default:
		err = s.tryCommandsOnce(ctx)
	}
	if err != nil {
		return err
	}
	s.report()
	return nil
}

// tryCommandsOnce calls tryCommands unless the collection has a record that the server has passed the probe; checking
// this takes one command. If tryCommands succeeds, tryCommandsOnce writes that record.
func (s *store) tryCommandsOnce(ctx context.Context) error {
	passed, err := s.probed(ctx)
	if err != nil || passed {
		return err
	}
	if err := s.refuseCapped(ctx); err != nil {
		return err
	}
	if err := s.tryCommands(ctx); err != nil {
		return err
	}
	return s.rememberProbe(ctx)
}

// refuseCapped returns an error if the collection is capped. From MongoDB 6.0 on, all commands would seem to work on
// a capped collection, until the server deletes the oldest records. refuseCapped opens a tailable cursor, which only
// a capped collection allows.
func (s *store) refuseCapped(ctx context.Context) error {
	cursor, err := s.tail(ctx, s.collection, bson.D{e("_id", s.probeID())})
	if err == nil {
		closeCursor(ctx, cursor)
		return fmt.Errorf("mongo: probe: %w: the collection %s is capped: the server would delete its oldest records, and so locks; drop it, or name another collection",
			driver.ErrRefused, s.collection)
	}
	if passing(err) {
		return failure("probe: find", err)
	}
	return nil
}

// tryCommands tries the store's own commands on records that it creates and removes. The records and commands cover
// a holder that has expired, a holder whose end has come, an expired waiter, a fixed lease, weights, a queue that
// may be overtaken only at its head, a named successor, terms, a value, a new limit, a tick that is over, a
// revocation, and the cases of the short commands.
func (s *store) tryCommands(ctx context.Context) error {
	p := prober{store: s, prefix: probePrefix + xid.New().String() + "/"}
	err := p.run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmLimit)
	defer cancel()
	if _, bad := s.write(ctx, p.cleanUp()); bad != nil {
		err = errors.Join(err, failure("probe: delete", bad))
	}
	return err
}

type prober struct {
	*store
	prefix string
}

// twins returns pairs of names that a collation may consider equal: they differ in case, in composed or decomposed
// accents, in digits or in punctuation.
func (p *prober) twins() []string {
	return []string{"A", "a", "\u00e9", "e\u0301", "1", "01", "a b", "ab"}
}

// wrong returns the error for a server that does not compute the same as MongoDB.
func wrong(command string, why error, got any) error {
	return fmt.Errorf("mongo: probe: %w: the server does not compute %s as MongoDB does: %w; got %+v", driver.ErrRefused, command, why, got)
}

func (p *prober) id(name string) string { return p.prefix + name }

func (p *prober) cleanUp() bson.D {
	ids := []string{p.id("key"), p.id("short"), p.id("new"), p.id("living"), p.id("unknown")}
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
	if err := p.key(ctx); err != nil {
		return err
	}
	if err := p.short(ctx); err != nil {
		return err
	}
	if err := p.successor(ctx); err != nil {
		return err
	}
	return p.sessions(ctx)
}

func (p *prober) sessions(ctx context.Context) error {
	query := func(name string) bson.D { return bson.D{e("_id", p.id(name))} }
	m := driver.Member{TTL: probeLease, Host: "$$NOW", Meta: map[string]string{"$x.y": "$z"}}
	if _, err := p.register(ctx, query("living"), m); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	m.Name = probeAgain
	if at, err := p.register(ctx, query("living"), m); err == nil {
		return wrong("register", errors.New("want a known session refused"), at)
	} else if !errors.Is(err, driver.ErrSessionExists) {
		return fmt.Errorf("probe: %w", err)
	}
	given, stands := probeRevoked, driver.Revocation{Key: "\u00e9 b", Claim: "$a.11"}
	if _, err := p.revoke(ctx, query("living"), stands); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	reply, err := p.heartbeat(ctx, query("living"), []driver.Revocation{given})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if !slices.Equal(reply.Revoked, []driver.Revocation{stands}) {
		return wrong("heartbeat", errors.New("want one of two revocations left"), reply)
	}
	left, err := p.expire(ctx, query("living"))
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left <= 0 || left > 2*probeLease { // the clocks of two routers may differ: see near
		return wrong("expire", fmt.Errorf("want about %v left for a new session", probeLease), left)
	}
	if left, err = p.expire(ctx, query("unknown")); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left != 0 {
		return wrong("expire", errors.New("want no time left for an unknown session"), left)
	}
	reply, err = p.heartbeat(ctx, query("unknown"), nil)
	switch {
	case err == nil:
		return wrong("heartbeat", errors.New("want no heartbeat for an expired session"), reply)
	case !errors.Is(err, driver.ErrSessionExpired):
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}
