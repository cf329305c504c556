package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/rs/xid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// probePrefix begins the _id of records that a probe makes and removes.
const probePrefix = "p/"

// probe learns what the server is, and tries the store's own commands on records
// of its own, in one pass that has a bit of everything in it: a dead holder, one
// whose end has come, a dead waiter, a fixed lease, weights, a line that must not be
// overtaken but from its head, terms, a value, a new limit, a seal, a revocation, and
// what the short commands are for. Twenty-seven commands. Of a store that is only to read it is the one that asks.
func (s *Store) probe(ctx context.Context) error {
	ctx = bare{ctx}
	v, err := s.hello(ctx)
	if err != nil {
		return fmt.Errorf("mongo: hello: %w", err)
	}
	s.server = v
	if s.readOnly {
		s.report()
		return nil
	}

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

// wrong is the error for a server that computed something else.
func wrong(command string, why error, got any) error {
	return fmt.Errorf("mongo: probe: %w: the server does not compute %s as MongoDB does: %w; got %+v", dsync.ErrRefused, command, why, got)
}

func (p *prober) id(name string) string { return p.prefix + name }

func (p *prober) cleanUp() bson.D {
	ids := []string{p.id("key"), p.id("short"), p.id("living"), p.id("unknown")}
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
	return p.sessions(ctx)
}

func (p *prober) sessions(ctx context.Context) error {
	query := func(name string) bson.D { return bson.D{e("_id", p.id(name))} }
	m := dsync.Member{TTL: probeLease, Host: "$$NOW", Meta: map[string]string{"$x.y": "$z"}}
	if _, err := p.register(ctx, query("living"), m); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	m.Name = probeAgain
	if at, err := p.register(ctx, query("living"), m); err == nil {
		return wrong("register", errors.New("a known session was to be refused"), at)
	} else if !errors.Is(err, dsync.ErrSessionExists) {
		return fmt.Errorf("probe: %w", err)
	}
	given, stands := probeRevoked, dsync.Revocation{Key: "\u00e9 b", Claim: "$a.11"}
	if err := p.revoke(ctx, query("living"), stands); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	pulse, err := p.heartbeat(ctx, query("living"), []dsync.Revocation{given})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if !slices.Equal(pulse.Revoked, []dsync.Revocation{stands}) {
		return wrong("heartbeat", errors.New("one of two revocations was to be left"), pulse)
	}
	left, err := p.bury(ctx, query("living"))
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left <= 0 || left > probeLease {
		return wrong("bury", fmt.Errorf("a new session was to have at most %v left", probeLease), left)
	}
	if left, err = p.bury(ctx, query("unknown")); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if left != 0 {
		return wrong("bury", errors.New("an unknown session was to have no time left"), left)
	}
	pulse, err = p.heartbeat(ctx, query("unknown"), nil)
	switch {
	case err == nil:
		return wrong("heartbeat", errors.New("a dead session was to have none"), pulse)
	case !errors.Is(err, dsync.ErrSessionDead):
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}
