package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// short tries each short command on a record that meets its conditions, and on records that do not, which it must
// not change. On MongoDB it also tries the short Acquire of a key without a record. The grants have a recent
// time, because it becomes the record's time, and a sweep deletes old records.
func (p *prober) short(ctx context.Context) error {
	past := time.UnixMilli(1)
	steps := []shortStep{
		{acquires, "$short.0", probeToken, past, false},
		{acquires, "$short.1", probeToken - 1, never, false},
		{acquires, "$short.2", probeToken, never, true},
		{acquires, "$short.3", 2 * probeToken, never, false}, // the key is held

		{releases, "$short.3", probeToken, past, false},     // the claim does not hold the key
		{releases, "$short.2", probeToken - 1, past, false}, // the key has a greater token
		{releases, "$short.2", probeToken, past, true},
		{acquires, "$short.4", 2 * probeToken, never, true}, // the key is free again

		{joins, "$short.5", 2 * probeToken, never, true},
		{releases, "$short.4", 2 * probeToken, past, false}, // another claim waits

		{handsOver, "$short.5", 2 * probeToken, past, false}, // the claim does not hold the key
		{handsOver, "$short.4", 2*probeToken - 1, past, false},
		{replaces, "$short.4", 2 * probeToken, past, false},
		{replaces, "$short.4", 2 * probeToken, never, true},
		{handsOver, "$short.5", lastHanded, past, true},
		{tries, "$short.7", 2 * probeToken, never, true},
	}
	if err := p.shortSteps(ctx, p.id("short"), steps); err != nil || p.server.portable {
		return err
	}
	return p.shortSteps(ctx, p.id("new"), []shortStep{
		{acquires, "$short.3", 2 * probeToken, past, false}, // must not create the record
		{acquires, "$short.4", 2 * probeToken, never, true},
		{joins, "$short.5", 2 * probeToken, never, true},
	})
}

type shortStep struct {
	command  string // one of the constants below
	claim    string
	token    int64 // or lastHanded
	notAfter time.Time
	want     bool
}

// lastHanded stands for the token that the last hand-over granted.
const lastHanded = 0

func (p *prober) shortSteps(ctx context.Context, id string, steps []shortStep) error {
	since := p.server.now
	var handed int64
	for _, step := range steps {
		c := probeShort(step.claim)
		if c.Token = step.token; step.token == lastHanded {
			c.Token = handed
		}
		ok, why, err := false, error(nil), error(nil)
		var got any = &ok
		switch step.command {
		case acquires:
			ok, err = p.acquireShort(ctx, id, c, step.token, since, step.notAfter)
		case releases:
			ok, _, err = p.releaseAloneShort(ctx, id, c, false)
		case joins, tries:
			var r keyRecord
			r, err = p.acquire(ctx, id, driver.Acquire{Claim: c, Wait: step.command == joins, NotAfter: step.notAfter})
			if got, ok = r, true; step.command == joins {
				why = acquiredShort(probeShort("$short.4"), since, r.state("probe"))
			} else {
				why = releasedShort(probeShort("$short.6"), r.state("probe"))
			}
		case handsOver, replaces:
			first, joins := probeShort("$short.5"), probeShort("$short.6")
			if step.claim == first.ID {
				first = joins
			}
			var j *joiner
			if step.command == replaces {
				j = &joiner{joins, p.claimRecord(joins), step.notAfter}
			}
			var h handOver
			if h, ok, err = p.handOver(ctx, id, c, j); ok {
				got, why, handed = h, handedShort(first, &h), h.token
			}
		}
		switch {
		case err != nil:
			return failure("probe: "+step.command, err)
		case ok != step.want:
			return wrong(step.command, fmt.Errorf("%s: applied %t, want %t", step.claim, ok, step.want), ok)
		case why != nil:
			return wrong(step.command, why, got)
		}
	}
	return nil
}

// The commands of a step.
const (
	acquires  = "a short acquire"
	releases  = "a short release"
	handsOver = "a short hand-over"
	replaces  = "a short replacement"
	joins     = "acquire after a short one"
	tries     = "acquire after a short hand-over"
)

func probeShort(claim string) driver.Claim {
	return driver.Claim{Key: "probe", ID: claim, Session: "$mine", Kind: driver.KindMutex, Weight: 1, Limit: 1}
}

// handedShort checks the reply to a short hand-over that grants c the key.
func handedShort(c driver.Claim, h *handOver) error {
	switch {
	case h.First == nil || h.First.Claim != c.ID || h.First.Session != c.Session || h.Before.Waiting != 1:
		return errors.New("want the claim that was in the queue in the reply")
	case h.Before.Now.IsZero():
		return errors.New("want the server's time in the reply")
	}
	return nil
}

// acquiredShort checks the state after c was granted the key and another claim has requested it.
func acquiredShort(c driver.Claim, since time.Time, st driver.State) error {
	h, ok := st.Holder(c.ID)
	switch {
	case !ok || len(st.Holders) != 1 || h.Session != c.Session || h.Weight != c.Weight:
		return errors.New("want the key held by mine")
	case h.Token != 2*probeToken || st.Token != h.Token:
		return errors.New("want the token that was sent")
	case !h.Since.Equal(since):
		return errors.New("want the time that was sent")
	case st.Kind != c.Kind || st.Limit != c.Limit:
		return errors.New("want the key's kind and limit unchanged")
	case st.Position != 1:
		return errors.New("want another first in the queue")
	}
	return nil
}

// releasedShort checks the state after a hand-over has granted c the key.
func releasedShort(c driver.Claim, st driver.State) error {
	h, ok := st.Holder(c.ID)
	switch {
	case !ok || len(st.Holders) != 1 || h.Session != c.Session || h.Weight != c.Weight || st.Waiting != 0:
		return errors.New("want the key held by the next in the queue")
	case h.Token < 2*probeToken+driver.TokenStep || st.Token != h.Token:
		return errors.New("want the token that was sent")
	case !near(h.Since, st.Now):
		return errors.New("want times of two commands that are close together")
	}
	return nil
}
