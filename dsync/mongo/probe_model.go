package mongo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// insert creates the records that the other commands start from. Each record has a time, so that a sweep finds it if
// the process dies before removing it: see leftProbes.
func (p *prober) insert(ctx context.Context) error {
	made := e("at", p.server.now)
	docs := bson.A{
		append(p.document(p.records["key"]), e("_id", p.id("key")), made, e("o", time.UnixMilli(1))),
		append(p.document(p.records["short"]), e("_id", p.id("short")), made),
		bson.D{e("_id", p.id("many")), made},
		bson.D{e("_id", p.id("living")), made, e("rev", bson.A{revocationRecord(probeRevoked)})},
	}
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

// document returns the fields that the model's record r has in the database.
func (p *prober) document(r model.Record) bson.D {
	h, q := bson.A{}, bson.A{}
	for _, o := range r.Holders {
		c := p.claimRecord(driver.Claim{ID: o.Claim, Session: o.Session, Weight: o.Weight, Value: string(o.Value)})
		c = append(c, e("l", o.Yield), e("v", o.Seq), e("t", o.Token), e("at", o.Since), e("n", o.Term))
		if !o.Until.IsZero() {
			c = append(c, e("e", o.Until))
		}
		h = append(h, c)
	}
	for _, o := range r.Queue {
		c := p.claimRecord(driver.Claim{ID: o.Claim, Session: o.Session, Weight: o.Weight, Tick: o.Tick, Value: o.Value})
		if o.Yield {
			c = append(c, e("l", true))
		}
		q = append(q, c)
	}
	d := bson.D{e("f", formatVersion), e("y", string(r.Kind)), e("c", r.Limit), e("t", r.Token), e("h", h), e("q", q)}
	if r.Term > 0 {
		d = append(d, e("n", r.Term), e("p", r.Former))
	}
	if r.Sealed > 0 {
		d = append(d, e("done", bson.D{e("k", r.Sealed), e("b", bson.Binary{Data: r.Result})}))
	}
	return d
}

// A probeReply is the reply to the command of a step.
type probeReply struct {
	keyRecord                // of a hand-over: the record before it
	applied   bool           // the record met the command's conditions
	first     []waiterRecord // of a hand-over: the first waiter, if there was one
	token     int64          // of a hand-over: the token that it granted
}

// try sends the command of a step, makes the same edit in the model, and compares the reply with the model's record.
// If the reply does not show the record, the reply to a later command shows it.
func (p *prober) try(ctx context.Context, s probeStep) error {
	key := s.edit.Key()
	before := p.records[key]
	r, err := p.send(ctx, s, p.id(key), before.Token)
	silent := slices.Contains([]string{releasesAlone, acquiresShort, releasesShort, makesShort, acquiresTogether, releasesTogether}, s.command)
	now := r.Now
	switch {
	case err != nil:
		return failure("probe: "+s.command, err)
	case r.applied == s.unmet:
		return wrong(s.command, fmt.Errorf("want it applied: %t", !s.unmet), s, r)
	case s.unmet:
		return nil
	case silent && s.edit.Release != nil && s.edit.Release.Keep > 0:
		if now, err = p.keptAt(ctx, s); err != nil {
			return err
		}
	case silent:
		now = p.server.now // what a short Acquire sends
	case now.IsZero():
		return wrong(s.command, errors.New("want the server's time"), s, r)
	}
	after, did, err := before.Edit(s.edit, now)
	if s.command == handsOver { // the store chooses the token
		after.Holders[0].Token, after.Token = r.token, r.token
	}
	if p.records[key] = after; silent {
		return nil // a later reply shows the record
	}
	if l := s.edit.Release; err != nil && (l == nil || r.succeeded(*l) == nil) {
		return wrong(s.command, fmt.Errorf("want %w", err), s, r)
	}
	var was, is probeRecord
	if err := errors.Join(decode(p.document(before), &was), decode(p.document(after), &is)); err != nil {
		return err
	}
	want := visible(s, was, is, now)
	if !did.Changed {
		want.At = r.At
	}
	if err := differ(r.keyRecord, want); err != nil {
		return wrong(s.command, err, s, r)
	}
	if s.command == handsOver && !reflect.DeepEqual(r.first, was.Queue[:1]) {
		return wrong(s.command, fmt.Errorf("want the first waiter %+v", was.Queue[0]), s, r)
	}
	return nil
}

// keptAt returns the server's time when it kept a claim with a short release. Only the record shows it. The clocks of
// two routers may differ.
func (p *prober) keptAt(ctx context.Context, s probeStep) (time.Time, error) {
	key := s.edit.Key()
	st, err := p.load(ctx, p.id(key), key, 0)
	if err != nil {
		return time.Time{}, failure("probe: load", err)
	}
	h, _ := st.Holder(s.edit.Release.Claim.ID)
	at := h.Until.Add(-s.edit.Release.Keep)
	if st.Now.Sub(at).Abs() > time.Minute {
		return time.Time{}, wrong(s.command, fmt.Errorf("want an end %v after its execution", s.edit.Release.Keep), s, st)
	}
	return at, nil
}

// send sends the command of a step. last is the last token of the key.
func (p *prober) send(ctx context.Context, s probeStep, id string, last int64) (r probeReply, err error) {
	r.applied = true
	switch e := s.edit; s.command {
	case acquires:
		r.keyRecord, err = p.acquire(ctx, id, *e.Acquire)
	case releases:
		r.keyRecord, r.applied, err = p.release(ctx, id, *e.Release)
	case releasesAlone:
		r.applied, _, err = p.releaseAlone(ctx, id, e.Release.Claim, false)
	case publishes:
		r.keyRecord, r.applied, err = p.publish(ctx, id, *e.Publish)
	case resizes:
		r.keyRecord, err = p.resize(ctx, id, *e.Resize)
	case acquiresShort, makesShort, acquiresTogether:
		c := e.Acquire.Claim
		if c.Token = after(last, p.server.now); s.stale {
			c.Token = last + driver.TokenStep - 1
		}
		edit := shortEdit{id: id, claim: c, since: p.server.now, until: e.Acquire.NotAfter}
		switch s.command {
		case makesShort:
			made := p.sideBySide(p.write, p.making)(ctx, []*statement{{edit: edit}})[0]
			if r.applied, err = made.changed, made.err; hasCode(err, codeConversion) {
				err = nil
			}
			return r, err
		case acquiresTogether:
			r.applied, err = p.sendTogether(ctx, p.acquiringTogether, edit)
			return r, err
		}
		r.applied, err = p.acquireShort(ctx, id, c, c.Token, p.server.now, e.Acquire.NotAfter)
	case releasesShort, releasesTogether, handsOver:
		c := e.Release.Claim
		if c.Token = last; s.stale {
			c.Token--
		}
		switch s.command {
		case releasesShort:
			l := *e.Release
			l.Claim = c
			r.applied, _, err = p.releaseAloneShort(ctx, id, l)
			return r, err
		case releasesTogether:
			r.applied, err = p.sendTogether(ctx, releasingTogether, shortEdit{id: id, claim: c})
			return r, err
		}
		var j *joiner
		if e.Acquire != nil {
			j = &joiner{e.Acquire.Claim, p.claimRecord(e.Acquire.Claim), e.Acquire.NotAfter}
		}
		var h handOver
		h, r.applied, err = p.handOver(ctx, id, c, j)
		if r.keyRecord, r.token = h.Before, h.token; h.First != nil {
			r.first = []waiterRecord{*h.First}
		}
	}
	return r, err
}

// sendTogether sends the edit together with one of the record "key", which never meets the conditions. It reports whether
// a record was changed. The record "key" must stay as it is; its reading shows whether it did: see loaded.
//
// The other edit goes first, could be later, and has a greater token. So the server must find the edit of each record in
// the list, and must compare a claim with its own token.
func (p *prober) sendTogether(ctx context.Context, pipeline func([]*statement) bson.A, edit shortEdit) (changed bool, err error) {
	other := edit
	other.id, other.claim.ID, other.until = p.id("key"), "$other.1", never
	other.claim.Token++
	reply, err := p.updateTogether(ctx, p.write, pipeline, []*statement{{edit: other}, {edit: edit}})
	if err != nil {
		return false, err
	}
	_, changed, err = updated(reply)
	return changed, err
}

// A probeRecord is all of a key's record.
type probeRecord struct {
	Key   keyRecord      `bson:",inline"`
	Queue []waiterRecord `bson:"q"`
}

// visible returns the part of the model's record that the reply to a step contains.
func visible(s probeStep, before, after probeRecord, now time.Time) keyRecord {
	seen := keyRecord{Now: now, At: now, Holders: after.Key.Holders, Waiting: len(after.Queue)}
	own := ""
	switch e := s.edit; {
	case s.command == acquires:
		seen, seen.Now, seen.At, seen.Waiting = after.Key, now, now, len(after.Queue)
		seen.Format, seen.Ahead = 0, after.Queue
		seen.Position = 1 + slices.IndexFunc(after.Queue, func(w waiterRecord) bool { return w.Claim == e.Acquire.Claim.ID })
		if seen.Position > 0 {
			seen.Ahead = after.Queue[:seen.Position-1]
		}
		return seen
	case s.command == publishes:
		return keyRecord{Now: now, Holders: after.Key.Holders}
	case s.command == handsOver: // the record before it
		seen = keyRecord{Now: now, Format: before.Key.Format, Token: before.Key.Token, Limit: before.Key.Limit, Waiting: len(before.Queue)}
		seen.Holders = []holderRecord{{Claim: before.Key.Holders[0].Claim}}
		if e.Acquire != nil {
			seen.Ahead = before.Queue
		}
		return seen
	case s.command == resizes:
		seen.Kind, seen.Limit, seen.Former = after.Key.Kind, after.Key.Limit, after.Key.Former
	case e.Release.Seal > 0: // the record before it
		return keyRecord{Now: now, Holders: before.Key.Holders, Ahead: before.Queue}
	case e.Release.Keep > 0:
		own, seen.Ahead = e.Release.Claim.ID, after.Queue[:1]
	case e.Release.Successor != "":
		own = e.Release.Claim.ID
	}
	seen.Holders = slices.DeleteFunc(seen.Holders, func(h holderRecord) bool { return !h.Since.Equal(now) && h.Claim != own })
	return seen
}

// loaded reads the record "key" and compares it with the model's.
func (p *prober) loaded(ctx context.Context) error {
	got, err := p.load(ctx, p.id("key"), "key", maxShown)
	if err != nil {
		return failure("probe: load", err)
	}
	if err := differ(got, p.records["key"].State("key", "", got.Now, maxShown)); err != nil {
		return wrong("load", err, "key", got)
	}
	return nil
}

// differ compares two structs, and returns an error that names the first field in which got differs from want. A
// missing list is as good as an empty one.
func differ[T any](got, want T) error {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		f := g.Type().Field(i)
		if !f.IsExported() || reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			continue
		}
		if f.Type.Kind() == reflect.Slice && g.Field(i).Len()+w.Field(i).Len() == 0 {
			continue
		}
		return fmt.Errorf("want %s %+v", f.Name, w.Field(i).Interface())
	}
	return nil
}

// decode decodes d into v, as if the server had sent it.
func decode(d bson.D, v any) error {
	raw, err := bson.Marshal(d)
	if err != nil {
		return err
	}
	return bson.Unmarshal(raw, v)
}
