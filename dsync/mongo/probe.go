package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
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
	var v server
	err := answered(ctx, func(ctx context.Context) (err error) {
		v, err = s.hello(ctx)
		return err
	})
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
	passed := false
	err := answered(ctx, func(ctx context.Context) (err error) {
		passed, err = s.probed(ctx)
		return err
	})
	if err != nil || passed {
		return err
	}
	if err := answered(ctx, s.refuseCapped); err != nil {
		return err
	}
	if err := s.tryCommands(ctx); err != nil {
		return err
	}
	return answered(ctx, s.rememberProbe)
}

// refuseCapped returns an error if the collection is capped. From MongoDB 6.0 on, all commands would seem to work on
// a capped collection, but once the collection is full, the server deletes its oldest records. refuseCapped opens a
// tailable cursor, which only a capped collection allows.
func (s *store) refuseCapped(ctx context.Context) error {
	cursor, err := s.tail(ctx, s.collection, bson.D{e("_id", s.probeID())})
	if err == nil {
		closeCursor(ctx, cursor)
		return fmt.Errorf("mongo: probe: %w: the collection %s is capped, so the server would delete the records of held locks; drop it, or name another collection",
			driver.ErrRefused, s.collection)
	}
	if passing(err) {
		return failure("probe: find", err)
	}
	return nil
}

// tryCommands tries the store's own commands on records that it creates and removes, and compares what the server
// computes with package model.
func (s *store) tryCommands(ctx context.Context) error {
	p := prober{store: s, prefix: probePrefix + xid.New().String() + "/", records: startRecords()}
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
	prefix  string
	records map[string]model.Record // what the server must have, by name
}

// twins returns pairs of names that a collation may consider equal: they differ in case, in composed or decomposed
// accents, in digits or in punctuation.
func (p *prober) twins() []string {
	return []string{"A", "a", "\u00e9", "e\u0301", "1", "01", "a b", "ab"}
}

// wrong returns the error for a server that does not compute the same as MongoDB.
func wrong(command string, why error, about, got any) error {
	return fmt.Errorf("mongo: probe: %w: the server does not compute %s as MongoDB does: %v: %w; got %+v", driver.ErrRefused, command, about, why, got)
}

func (p *prober) id(name string) string { return p.prefix + name }

func (p *prober) cleanUp() bson.D {
	ids := []string{p.id("key"), p.id("short"), p.id("new"), p.id("many"), p.id("living"), p.id("unknown")}
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

// run makes all tries, each within the time that a command may take.
func (p *prober) run(ctx context.Context) error {
	tries := []func(context.Context) error{p.insert}
	for _, s := range p.steps() {
		tries = append(tries, func(ctx context.Context) error { return p.try(ctx, s) })
	}
	for _, try := range slices.Concat(tries, []func(context.Context) error{p.loaded}, p.sessions()) {
		if err := answered(ctx, try); err != nil {
			return err
		}
	}
	return nil
}

// answered calls send with a context that ends when the answer is overdue. send sends one command.
func answered(ctx context.Context, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return send(ctx)
}

// sessions returns the tries of the commands for sessions.
func (p *prober) sessions() []func(context.Context) error {
	query := func(name string) bson.D { return bson.D{e("_id", p.id(name))} }
	m := driver.Member{TTL: probeLease, Host: "$$NOW", Meta: map[string]string{"$x.y": "$z"}}
	stands := driver.Revocation{Key: "\u00e9 b", Claim: "$a.11"}
	return []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := p.register(ctx, query("living"), m)
			return unwanted(err)
		},
		func(ctx context.Context) error {
			m.Name = probeAgain
			at, err := p.register(ctx, query("living"), m)
			if err == nil {
				return wrong("register", errors.New("want a known session refused"), "living", at)
			}
			return unwanted(err, driver.ErrSessionExists)
		},
		func(ctx context.Context) error {
			_, err := p.revoke(ctx, query("living"), stands)
			return unwanted(err)
		},
		func(ctx context.Context) error {
			reply, err := p.heartbeat(ctx, query("living"), []driver.Revocation{probeRevoked})
			if err == nil && !slices.Equal(reply.Revoked, []driver.Revocation{stands}) {
				return wrong("heartbeat", errors.New("want one of two revocations left"), "living", reply)
			}
			return unwanted(err)
		},
		func(ctx context.Context) error {
			left, err := p.expire(ctx, query("living"))
			if err == nil && (left <= 0 || left > 2*probeLease) { // the clocks of two routers may differ
				return wrong("expire", fmt.Errorf("want about %v left for a new session", probeLease), "living", left)
			}
			return unwanted(err)
		},
		func(ctx context.Context) error {
			left, err := p.expire(ctx, query("unknown"))
			if err == nil && left != 0 {
				return wrong("expire", errors.New("want no time left for an unknown session"), "unknown", left)
			}
			return unwanted(err)
		},
		func(ctx context.Context) error {
			reply, err := p.heartbeat(ctx, query("unknown"), nil)
			if err == nil {
				return wrong("heartbeat", errors.New("want no heartbeat for an expired session"), "unknown", reply)
			}
			return unwanted(err, driver.ErrSessionExpired)
		},
	}
}

// unwanted returns err as an error of the probe, or nil if err is nil or matches a wanted error.
func unwanted(err error, want ...error) error {
	if err == nil || slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
		return nil
	}
	return fmt.Errorf("probe: %w", err)
}
