package mongo

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// In the most common states of a record, a short command has the same effect as a pipeline, for a fraction of the
// server's time. It releases or keeps a simple claim, grants one, or releases one and grants another. It does not
// clean up. The conditions are part of the command. If they are not met, the command changes nothing, and the pipeline
// must follow. So a short command is as safe as a pipeline, no matter when it arrives.
//
// For a short command, this process chooses the token of the grant, while a pipeline computes it from the record. The
// command requires the token to be at least a step greater than the record's last token. acquireShort also writes the
// time of the grant: the latest time that, as far as this process knows, the server's clock has reached. So the reply
// need not contain the token and the time. If nobody needs a notice, an update is enough, and an update costs the
// server less than a findAndModify.

// simple reports whether c has weight 1 and limit 1, no end of its own, and no extra room for hand-offs.
func simple(c driver.Claim) bool {
	return c.Weight == 1 && c.Limit == 1 && c.Lease == 0 && !c.Yield
}

// after returns a token for the next grant of a key. last is the key's last token, and reached is a time that the
// server's clock has reached. A pipeline computes the token in the same way, from the record and the clock.
func after(last int64, reached time.Time) int64 {
	return max(last+driver.TokenStep, reached.UnixMilli()*driver.TokenStep)
}

// plain reports whether c is simple and its grant needs nothing but a token. An election's claim also needs a term,
// and a claim with a tick needs a check that the tick is not over.
func plain(c driver.Claim) bool { return simple(c) && c.Kind != driver.KindElection && c.Tick == 0 }

// A short Acquire has no effect once the server's clock is more than maxLag past the time for which its token was
// chosen. This protects keys without a record: they have no last token to compare with, but a sweep may have deleted
// one. A deleted token is behind the clock by at least the retention. The retention is at least two TTLs, so at least
// two seconds. A token that is at most maxLag behind the clock is therefore greater.
const maxLag = time.Second

// acquireFree sends the short Acquire, unless that would probably fail. If this process was the last to use the key,
// it knows the last token. Otherwise the key may have no record, or another process may have used and released it, so
// the short Acquire is still worth a try. The exceptions are:
//
//   - a key that was contended, and a repeated request, because it usually comes from a waiter;
//   - servers other than MongoDB, where the short Acquire can't create a record.
func (s *store) acquireFree(ctx context.Context, j driver.Acquire) (st driver.State, granted bool, err error) {
	c := j.Claim
	reached := s.clock.reached().Truncate(time.Millisecond) // the precision of the record
	last, known := s.lastUsed.take(c.Key, "")
	if !known && (j.Repeated || s.server.portable || s.contended.has(c.Key)) {
		return driver.State{}, false, nil
	}
	token, until := after(last, reached), reached.Add(maxLag)
	if j.NotAfter.Before(until) {
		until = j.NotAfter
	}
	if granted, err = s.acquireShort(ctx, keyID(c.Key), c, token, reached, until); !granted {
		s.contended.add(c.Key, unknown)
		return driver.State{}, false, err
	}
	s.lastUsed.note(c.Key, c.ID, token)
	st = driver.State{
		Key: c.Key, Now: reached, Kind: c.Kind, Limit: c.Limit, Token: token,
		Holders: []driver.Holder{{Claim: c.ID, Session: c.Session, Weight: c.Weight, Token: token, Since: reached}},
	}
	if c.Value != "" {
		st.Value = []byte(c.Value)
	}
	return st, true, nil
}

// acquireShort grants the plain claim c, with the given token, as held since the given time. It does so only if the
// key has no record or is free, and only if the server's time is not after the argument until. A free key was last
// used with c's kind and limit, and its last token is at least a step less than the given one. Nobody holds the key,
// waits for it or observes it.
//
// On MongoDB the command creates a missing record, and fails with codeConversion if the conditions are not met (see
// unmet). If another upsert creates the record at the same time, the command may fail with codeDuplicateKey. In both
// cases it writes nothing.
func (s *store) acquireShort(ctx context.Context, id string, c driver.Claim, token int64, since, until time.Time) (granted bool, err error) {
	c.Token = token
	r := s.writeShort(ctx, &s.acquires, shortEdit{id: id, claim: c, since: since, until: until})
	if hasCode(r.err, codeConversion, codeDuplicateKey) || errors.Is(r.err, errInDoubt) || errors.Is(r.err, errNoMatch) {
		return false, nil // the pipeline follows, and shows whether c holds the key already
	}
	return r.changed, r.err
}

// releaseAloneShort releases l.Claim, or keeps it for l.Keep. It does so only if the claim is the only holder, no token
// of the key is greater than the claim's, and nobody waits for the key or observes it.
func (s *store) releaseAloneShort(ctx context.Context, id string, l driver.Release) (found bool, applied driver.OpTime, err error) {
	w, early := &s.releases, s.isEarly(l.Early)
	switch {
	case l.Keep > 0:
		w = &s.keeps
	case early:
		w = &s.earlyReleases
	}
	r := s.writeShort(ctx, w, shortEdit{id: id, claim: l.Claim, keep: l.Keep})
	if hasCode(r.err, codeConversion) {
		return false, driver.OpTime{}, nil
	}
	if early && r.changed {
		applied = s.applied(r.reply)
	}
	return r.changed, applied, r.err
}

// A handOver is what the reply to a short hand-over contains: part of the key's record, as it was before the command.
type handOver struct {
	Before keyRecord     `bson:",inline"`
	First  *waiterRecord `bson:"first"` // first in the queue, nil if the queue was empty
	Queue  bson.RawValue `bson:"q"`     // instead of First, if the reply is the whole record

	token int64 // token of First, or of the joiner if the joiner was granted the key
	left  int   // claims that still wait afterwards
}

// A joiner is a claim that joins the queue in a short hand-over, unless the server runs the hand-over after notAfter.
type joiner struct {
	claim    driver.Claim
	record   bson.D // the claim's record in the queue
	notAfter time.Time
}

// handOver releases c and grants the key to the first waiter, if there is one. It does so only if c is the only
// holder, no token of the key is greater than c's, and the first waiter is simple, too. If j is not nil, j joins the
// queue first, and two more conditions apply: the queue has room, and j.notAfter has not passed. done reports
// whether the conditions were met. handOver asks for the record before the change, because the record after it would
// not show whether this command released c.
//
// If this process knows that only few claims wait, the reply is the whole record. A projection would take the server
// longer than copying the record, and it runs after the commit. On a replica set of one member, the extra time often
// makes the command miss the moment when its log entry becomes visible. The command then waits up to a millisecond
// longer.
func (s *store) handOver(ctx context.Context, id string, c driver.Claim, j *joiner) (h handOver, done bool, err error) {
	h.token = after(c.Token, s.clock.reached())
	m := modify{query: bson.D{e("_id", id)}, update: s.handingOver(c, h.token, j), before: true}
	if j != nil || !s.contended.byFew(c.Key) {
		m.fields = handedOver(c, j)
	}
	switch found, err := s.modify(ctx, m, &h); {
	case err != nil || !found:
		return handOver{}, false, err
	case m.fields != nil:
		s.clock.set(h.Before.Now)
	default:
		h.Before.Now = s.clock.reached()
		if err := h.readQueue(); err != nil {
			return handOver{}, false, err
		}
	}
	if h.left = max(0, h.Before.Waiting-1); j != nil {
		h.left = h.Before.Waiting
	}
	return h, h.met(c, j), nil
}

// readQueue sets First, and the number of waiters, from the queue in the whole record.
func (h *handOver) readQueue() error {
	queue, ok := h.Queue.ArrayOK()
	if !ok {
		return nil // the record has another format: see met
	}
	waiters, err := queue.Values()
	if err != nil || len(waiters) == 0 {
		return err
	}
	h.Before.Waiting = len(waiters)
	return waiters[0].Unmarshal(&h.First)
}

// met reports whether the record, as it was before the command, met the conditions of handingOver.
func (h *handOver) met(c driver.Claim, j *joiner) bool {
	r := &h.Before
	if j != nil && (r.Waiting >= driver.MaxQueue || r.Now.After(j.notAfter.Truncate(time.Millisecond))) {
		return false
	}
	switch {
	case len(r.Holders) != 1 || r.Holders[0].Claim != c.ID || r.Token != c.Token,
		r.Format != formatVersion || r.Limit != 1:
		return false
	}
	return h.First == nil || h.First.Lease == 0 && !h.First.Yield
}

// state returns the state of the key after a hand-over in which c joined the queue.
func (h *handOver) state(c driver.Claim) driver.State {
	r := &h.Before
	st := driver.State{Key: c.Key, Now: r.Now, Kind: c.Kind, Limit: c.Limit, Token: h.token, Waiting: h.left, Position: h.left}
	next := driver.Holder{Claim: c.ID, Session: c.Session}
	value := []byte(c.Value)
	if w := h.First; w != nil {
		next.Claim, next.Session, value = w.Claim, w.Session, w.Value
	}
	if len(value) > 0 {
		st.Value = value
	}
	next.Weight, next.Token, next.Since = 1, h.token, r.Now
	st.Holders = []driver.Holder{next}
	ahead := r.Ahead
	if len(ahead) > 0 && len(ahead) == r.Waiting {
		ahead = ahead[1:] // without First
	}
	for _, w := range ahead {
		st.WaitersAhead = append(st.WaitersAhead, driver.Waiter{Claim: w.Claim, Session: w.Session, Weight: w.Weight})
	}
	return st
}

// grant returns the notice for the waiter that was granted the key, if there was one.
func (h *handOver) grant(c driver.Claim) []driver.Notice {
	w := h.First
	if w == nil || w.Address == 0 {
		return nil
	}
	n := driver.Notice{
		Type: driver.NoticeGrant, Session: w.Session, Key: c.Key, Claim: w.Claim,
		Token: h.token, Crowded: h.left > 0, Address: w.Address,
	}
	if c.Kind == driver.KindElection {
		n.Term = h.Before.Terms + 1
	}
	return []driver.Notice{n}
}

// maxRemembered is the greatest number of keys that contendedKeys and lastUsedKeys each remember. Beyond that, they
// forget arbitrary keys.
const maxRemembered = 4096

// bound forgets arbitrary keys beyond maxRemembered.
func bound[V any](keys map[string]V) {
	for key := range keys {
		if len(keys) <= maxRemembered {
			return
		}
		delete(keys, key)
	}
}

// contendedKeys are the keys that were not free for a plain claim when this process last requested or released them.
// A key is also among them if that command got no answer. Such a key is probably not free the next time either, and a
// short Acquire would be a wasted command. So this process sends no short Acquire until the pipeline finds the key
// free, or the key is among the lastUsedKeys.
type contendedKeys struct {
	mu      sync.Mutex
	waiting map[string]int // how many claims waited for the key, or unknown
}

const (
	unknown = math.MaxInt
	few     = 100 // waiters, whose records take about 10 KiB, or 40 KiB with large values
)

func (k *contendedKeys) add(key string, waiting int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting == nil {
		k.waiting = make(map[string]int)
	}
	k.waiting[key] = waiting
	bound(k.waiting)
}

// byFew reports whether the key is contended by only a few waiters: no more than the constant few.
func (k *contendedKeys) byFew(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.waiting[key]
	return ok && n <= few
}

func (k *contendedKeys) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.waiting, key)
}

func (k *contendedKeys) has(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.waiting[key]
	return ok
}

// lastUsedKeys are the keys whose last user, as far as this process knows, is this process itself. So it knows their
// last tokens. The process holds them or was the last to hold them, and nobody waited for them at its last command.
type lastUsedKeys struct {
	mu   sync.Mutex
	keys map[string]lastUsedKey
}

type lastUsedKey struct {
	claim string // the claim that holds the key, "" if none does
	token int64  // the key's last token
}

// note records the key's last token and the claim that holds the key, or "" if none does.
func (l *lastUsedKeys) note(key, claim string, token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = make(map[string]lastUsedKey)
	}
	l.keys[key] = lastUsedKey{claim, token}
	bound(l.keys)
}

// take reports whether the key is remembered with the given claim as its holder, and returns its last token. It also
// forgets the key, because its state is unknown until the next command is answered; note then records it again.
func (l *lastUsedKeys) take(key, claim string) (token int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys[key]
	if !ok || k.claim != claim {
		return 0, false
	}
	delete(l.keys, key)
	return k.token, true
}
