package mongo

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/model"
)

// probeRevoked is a revocation that the session's record has from the start.
var probeRevoked = driver.Revocation{Key: "$a", Claim: "$a.1"}

const (
	probeLease  = time.Hour
	probeValue  = "$t"
	probeResult = "$$NOW"
	probeAgain  = "$again" // the name of a session that is registered twice
	probeTick   = 5        // the tick that the key is sealed up to
)

// The commands of the probe, as its errors name them.
const (
	acquires      = "acquire"
	releases      = "release"
	releasesAlone = "release of the only claim"
	publishes     = "publish"
	resizes       = "resize"
	acquiresShort = "short acquire"
	releasesShort = "short release"
	handsOver     = "short hand-over"

	makesShort       = "short acquire of a new key"
	acquiresTogether = "acquires together"
	releasesTogether = "releases together"
)

// A probeStep is one edit of one of the probe's records, and the command that makes it.
type probeStep struct {
	command string
	edit    driver.Edit // its key is the record's name

	// unmet means that the record does not meet the command's conditions, so nothing may change.
	unmet bool

	// stale makes the command's token one less than the conditions allow.
	stale bool
}

// startRecords returns the records that the steps start from, by name.
func startRecords() map[string]model.Record {
	past := time.UnixMilli(1).UTC()
	waiter := func(session string, weight, tick int64) model.Waiter {
		return model.Waiter{Waiter: driver.Waiter{Claim: session + ".1", Session: session, Weight: weight, Tick: tick}}
	}
	one := waiter("one", 2, 0)
	one.Yield, one.Value = true, probeValue
	return map[string]model.Record{
		"key": {
			Kind: driver.KindElection, Limit: 2, Former: []int64{9}, Token: 7, Term: 3,
			Holders: []model.Holder{
				{Holder: driver.Holder{Claim: "dead.2", Session: "dead", Weight: 1, Token: 5, Since: past, Yield: true}, Value: []byte("the dead's"), Seq: 1},
				{Holder: driver.Holder{Claim: "over.1", Session: "over", Weight: 1, Token: 6, Since: past, Until: past}},
			},
			Queue: []model.Waiter{waiter("dead", 1, 0), one, waiter("two", 2, probeTick), waiter("three", 1, probeTick), waiter("later", 2, probeTick+2)},
		},
		"short": {Kind: driver.KindMutex, Limit: 1, Token: 7},
	}
}

// steps returns the edits of the probe. Together with the records, these edits cover a holder and a waiter with
// expired sessions, a holder whose end has come, a fixed end, weights, a queue that may be overtaken only at its
// head, a named successor, terms, a value, a new limit, and a tick that is over. They also cover each short command,
// alone and together with another, on a record that meets its conditions and on records that do not.
func (p *prober) steps() []probeStep {
	acquire := func(command string, c driver.Claim, expired ...string) probeStep {
		return probeStep{command: command, edit: driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: true, Expired: expired, NotAfter: never}}}
	}
	release := func(command string, l driver.Release) probeStep {
		return probeStep{command: command, edit: driver.Edit{Release: &l}}
	}
	unmet := func(s probeStep) probeStep {
		s.unmet = true
		return s
	}
	stale := func(s probeStep) probeStep {
		s.stale = true
		return unmet(s)
	}
	late := func(s probeStep) probeStep {
		s.edit.Acquire.NotAfter = time.UnixMilli(1)
		return unmet(s)
	}
	held := func(claim string) driver.Claim { return driver.Claim{Key: "key", ID: claim} }
	mine := func(claim string, tick int64) driver.Claim {
		return driver.Claim{Key: "key", ID: claim, Session: "$mine", Kind: driver.KindElection, Weight: 2, Limit: 9, Tick: tick}
	}
	head := mine("$mine.2", probeTick)
	head.First = true
	publish := driver.Publish{Claim: held("two.1"), Seq: 1, Value: []byte(probeValue)}
	steps := []probeStep{
		acquire(acquires, mine("$mine.1", probeTick+1), "dead", "$dead"),
		{command: resizes, edit: driver.Edit{Resize: &driver.Resize{Key: "key", Kind: driver.KindElection, From: 8, Limit: 3}}},
		release(releases, driver.Release{Claim: held("one.1"), Keep: probeLease / 2}),
		unmet(release(releasesAlone, driver.Release{Claim: held("one.1")})), // others wait
		release(releases, driver.Release{Claim: held("one.1")}),
		{command: publishes, edit: driver.Edit{Publish: &publish}},
		acquire(acquires, head),
		release(releases, driver.Release{Claim: held("two.1"), Seal: probeTick, Result: []byte(probeResult)}),
		acquire(acquires, mine("$mine.3", probeTick), "later"),
		release(releasesAlone, driver.Release{Claim: held("three.1")}),
	}

	short := func(claim string) driver.Claim {
		return driver.Claim{Key: "short", ID: claim, Session: "$mine", Kind: driver.KindMutex, Weight: 1, Limit: 1}
	}
	replace := func(old, c string) probeStep {
		s := acquire(handsOver, short(c))
		s.edit.Release = &driver.Release{Claim: short(old)}
		return s
	}
	leave := func(command, claim string) probeStep { return release(command, driver.Release{Claim: short(claim)}) }
	keep := release(releasesShort, driver.Release{Claim: short("$short.6"), Keep: probeLease})
	try := acquire(acquires, short("$short.7"))
	try.edit.Acquire.Wait = false
	steps = append(steps,
		late(acquire(acquiresShort, short("$short.0"))),
		stale(acquire(acquiresShort, short("$short.1"))),
		acquire(acquiresShort, short("$short.2")),
		unmet(acquire(acquiresShort, short("$short.3"))), // the key is held
		unmet(leave(releasesShort, "$short.3")),          // does not hold the key
		stale(leave(releasesShort, "$short.2")),
		leave(releasesShort, "$short.2"),
		acquire(acquiresShort, short("$short.4")), // the key is free again
		acquire(acquires, short("$short.5")),
		unmet(leave(releasesShort, "$short.4")), // another claim waits
		unmet(leave(handsOver, "$short.5")),     // does not hold the key
		stale(leave(handsOver, "$short.4")),
		late(replace("$short.4", "$short.6")),
		replace("$short.4", "$short.6"),
		leave(handsOver, "$short.5"),
		keep,
		unmet(keep), // it has an end
		try,
		acquire(acquires, short("$short.8")),
		release(releases, driver.Release{Claim: short("$short.6"), Successor: "$none.1"}), // does not wait
		release(releases, driver.Release{Claim: short("$short.6"), Successor: "$short.8"}),
	)
	if p.server.portable { // a short acquire can't make a record
		return steps
	}
	of := func(key, claim string) driver.Claim {
		c := short(claim)
		c.Key = key
		return c
	}
	steps = append(steps,
		late(acquire(acquiresShort, of("new", "$short.3"))), // must not make the record
		acquire(acquiresShort, of("new", "$short.4")),
		acquire(acquires, of("new", "$short.5")),
	)
	if !p.server.bulks() {
		return steps
	}
	makeMany := func(claim string) probeStep { return acquire(makesShort, of("many", claim)) }
	acquireMany := func(claim string) probeStep { return acquire(acquiresTogether, of("many", claim)) }
	releaseMany := func(claim string) probeStep {
		return release(releasesTogether, driver.Release{Claim: of("many", claim)})
	}
	return append(steps,
		late(makeMany("$many.0")),
		makeMany("$many.1"),           // the record is empty
		unmet(makeMany("$many.2")),    // there is a record
		unmet(acquireMany("$many.2")), // the key is held
		unmet(releaseMany("$many.2")), // does not hold the key
		stale(releaseMany("$many.1")),
		releaseMany("$many.1"),
		late(acquireMany("$many.3")),
		stale(acquireMany("$many.3")),
		acquireMany("$many.4"), // the key is free again
		acquire(acquires, of("many", "$many.5")),
		unmet(releaseMany("$many.4")), // another claim waits
	)
}

// String names the record and the claim of the step.
func (s probeStep) String() string {
	claim := ""
	switch e := s.edit; {
	case e.Release != nil:
		claim = e.Release.Claim.ID
	case e.Acquire != nil:
		claim = e.Acquire.Claim.ID
	case e.Publish != nil:
		claim = e.Publish.Claim.ID
	}
	return fmt.Sprintf("%q of the record %q", claim, s.edit.Key())
}
