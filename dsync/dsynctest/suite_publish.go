package dsynctest

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// publishCases test Publish.
func publishCases() []conformanceCase {
	return []conformanceCase{
		{name: "Publish/IsReadByAll", test: testPublishRead},
		{name: "Race/PublishAndHandOff", test: testPublishRace},
	}
}

// publish sends a Publish with c's next sequence number. The Publish must not fail.
func (e *env) publish(c driver.Claim, value []byte) {
	e.Helper()
	e.published[c.ID]++
	e.publishAs(c, e.published[c.ID], value)
}

// publishAs sends a Publish, which must not fail.
func (e *env) publishAs(c driver.Claim, seq int64, value []byte) {
	e.Helper()
	before := e.seen
	notices, err := storecmd.Publish(e.ctx, e.store, c, seq, value)
	if err != nil {
		e.Fatalf("Publish(%s, %d, %d bytes): %v", c.ID, seq, len(value), err)
	}
	e.noticed(c, before, notices)
}

// wantValue checks the published value; nil means no value, not an empty one.
func (e *env) wantValue(s driver.State, want []byte) {
	e.Helper()
	if !bytes.Equal(s.Value, want) || (s.Value == nil) != (want == nil) {
		e.Fatalf("the value has %d bytes (nil %t): %.40q; want %d bytes (nil %t): %.40q",
			len(s.Value), s.Value == nil, s.Value, len(want), want == nil, want)
	}
}

// values returns values to publish one after the other.
func values() [][]byte {
	return [][]byte{
		[]byte("10.0.0.1:8080"), []byte("$$NOW"), []byte("$h"), {0, 1, 0xff, 0}, {}, []byte("again"),
		bytes.Repeat([]byte{0xfe}, 64<<10), []byte("10.0.0.1:8080"),
	}
}

func testPublishRead(e *env) {
	for _, c := range []driver.Claim{
		e.candidate(newID(), e.session()), e.claim(newID(), e.session()), e.leased(newID(), e.session(), long),
	} {
		e.hold(c)
		before := e.load(c.Key)
		e.wantValue(before, nil)
		for _, v := range values() {
			sent := bytes.Clone(v)
			e.publish(c, sent)
			e.publishAs(c, e.published[c.ID], sent)
			for i := range sent {
				sent[i]++ // the caller may change its slice
			}
			read := e.load(c.Key)
			e.wantValue(read, v)
			other := e.claim(c.Key, c.Session)
			other.Kind = c.Kind
			e.wantValue(e.try(other), v)
			e.wantHolders(read, c)
			e.wantQueue(read)
			h, was := read.Holders[0], before.Holders[0]
			if h.Token != was.Token || !h.Since.Equal(was.Since) || !h.Until.Equal(was.Until) || read.Term != before.Term {
				e.Errorf("Publish changed %+v to %+v", before, read)
			}
		}
	}
}

// testPublishRace publishes a value while another claim gets the key. Whichever command arrives first, the key must
// not have that value under its new holder.
func testPublishRace(e *env) {
	key, session := newID(), e.session()
	holder := e.claim(key, session)
	e.hold(holder)
	for range 12 {
		next := e.claim(key, session)
		e.queue(next)
		var published atomic.Int32
		errs := make([]error, 8)
		together(len(errs), func(i int) {
			if i == len(errs)/2 {
				_, _, errs[i] = storecmd.Release(e.ctx, e.store, holder, driver.Release{})
				return
			}
			_, err := storecmd.Publish(e.ctx, e.store, holder, int64(i+1), []byte{byte(i)})
			if err == nil {
				published.Add(1)
			} else if !errors.Is(err, driver.ErrNotHeld) {
				errs[i] = err
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Publish and Release at the same time: %v", err)
		}
		s := e.load(key)
		e.wantHolders(s, next)
		if s.Value != nil {
			e.Fatalf("the next holder has the value %v of the last holder; %d Publishes succeeded", s.Value, published.Load())
		}
		holder = next
	}
}

// sealCases test Release with Seal.
func sealCases() []conformanceCase {
	return []conformanceCase{
		{name: "Seal/ResultIsReadByAll", test: testSealResult},
		{name: "Race/SealAndAcquire", test: testSealRace},
	}
}

// seal sends a Release that seals, which must not fail.
func (e *env) seal(c driver.Claim, result []byte, wantFound bool) {
	e.Helper()
	e.releaseAs(c, driver.Release{Seal: 1, Result: result}, wantFound)
}

// wantSealed checks that a state is sealed up to tick 1, with the result and the last token.
func (e *env) wantSealed(s driver.State, token int64, result []byte) {
	e.Helper()
	e.wantTick(s, 1, token, result)
}

// wantTick checks that a state shows its key as sealed up to the tick, with the result and the last token.
func (e *env) wantTick(s driver.State, tick, token int64, result []byte) {
	e.Helper()
	if s.Sealed != tick || s.Value == nil || !bytes.Equal(s.Value, result) || s.Token != token {
		e.Fatalf("sealed up to %d, token %d, %d bytes (nil %t) %.40q; want %d, %d, %d bytes %.40q",
			s.Sealed, s.Token, len(s.Value), s.Value == nil, s.Value, tick, token, len(result), result)
	}
}

func testSealResult(e *env) {
	session := e.session()
	for _, result := range append(values(), nil) {
		c := e.claim(newID(), session)
		c.Kind = driver.KindOnce
		token := e.hold(c).Token
		e.publish(c, []byte("value"))
		if s := e.load(c.Key); s.Sealed > 0 {
			e.Fatalf("sealed before any Release with Seal: %+v", s)
		}
		sent := bytes.Clone(result)
		e.seal(c, sent, true)
		for i := range sent {
			sent[i]++ // the caller may change its slice
		}
		other := e.claim(c.Key, e.session())
		other.Kind = c.Kind
		for _, s := range []driver.State{e.load(c.Key), e.acquire(other), e.try(other), e.load(c.Key), e.key(c.Key)} {
			e.wantSealed(s, token, result)
			e.wantHolders(s)
			e.wantQueue(s)
			if s.Kind != c.Kind {
				e.Errorf("kind %q, want %q", s.Kind, c.Kind)
			}
		}
	}
}

// testSweepSealed is one of sweepCases.
func testSweepSealed(e *env) {
	session := e.session()
	c := e.claim(newID(), session)
	token := e.hold(c).Token
	e.seal(c, []byte("result"), true)
	e.expire(session)
	for range 2 {
		e.until(e.now().Add(short / 2))
		e.sweep(short / 8)
		e.sweep(0)
		e.wantSealed(e.load(c.Key), token, []byte("result"))
	}
}
