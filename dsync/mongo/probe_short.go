package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// short tries the short commands on a record that they are for, and each of them
// with what must keep it from changing anything. The time of what they grant is a late
// one: it becomes the record's, by which a sweep would find it.
func (p *prober) short(ctx context.Context) error {
	id := p.id("short")
	since, past, until := p.server.now, time.UnixMilli(1), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	mine := func(claim string) dsync.Claim {
		return dsync.Claim{Key: "probe", ID: claim, Session: "$mine", Kind: dsync.KindMutex, Weight: 1, Limit: 1}
	}
	for _, step := range []struct {
		claim    string
		token    int64
		notAfter time.Time
		want     bool
	}{
		{"$short.0", probeToken, past, false},
		{"$short.1", probeToken - 1, until, false},
		{"$short.2", probeToken, until, true},
		{"$short.3", 2 * probeToken, until, false}, // it is held
	} {
		ok, err := p.acquireShort(ctx, id, mine(step.claim), step.token, since, step.notAfter)
		if err != nil {
			return failure("probe: acquire", err)
		}
		if ok != step.want {
			return wrong("a short acquire", fmt.Errorf("that %s is granted was to be %t", step.claim, step.want), ok)
		}
	}
	st, _, err := p.acquire(ctx, id, mine("$short.4"), true, nil, until)
	if err != nil {
		return failure("probe: acquire", err)
	}
	if err := acquiredShort(mine("$short.2"), since, st); err != nil {
		return wrong("a short acquire", err, st)
	}
	for _, step := range []struct {
		claim string
		token int64
		want  bool
	}{
		{"$short.3", probeToken, false},     // it does not hold
		{"$short.2", probeToken - 1, false}, // there was a later one
		{"$short.2", probeToken, true},      // grants the next
	} {
		c := mine(step.claim)
		c.Token = step.token
		found, err := p.releaseShort(ctx, id, c)
		if err != nil {
			return failure("probe: release", err)
		}
		if found != step.want {
			return wrong("a short release", fmt.Errorf("that %s is released was to be %t", step.claim, step.want), found)
		}
	}
	if st, _, err = p.acquire(ctx, id, mine("$short.5"), false, nil, until); err != nil {
		return failure("probe: acquire", err)
	}
	if err := releasedShort(mine("$short.4"), st); err != nil {
		return wrong("a short release", err, st)
	}
	return nil
}

// acquiredShort checks the state in which another claim found c, that was behind it.
func acquiredShort(c dsync.Claim, since time.Time, st dsync.State) error {
	h, ok := st.Holder(c.ID)
	switch {
	case !ok || len(st.Holders) != 1 || h.Session != c.Session || h.Weight != c.Weight:
		return errors.New("mine was to hold")
	case h.Token != probeToken || st.Token != h.Token:
		return errors.New("the token was to be the one that was sent")
	case !h.Since.Equal(since):
		return errors.New("the time was to be the one that was sent")
	case st.Kind != c.Kind || st.Limit != c.Limit:
		return errors.New("the key's kind and limit were to stay")
	case st.Place != 1:
		return errors.New("another was to be first in line")
	}
	return nil
}

// releasedShort checks the state in which c was granted the key.
func releasedShort(c dsync.Claim, st dsync.State) error {
	h, ok := st.Holder(c.ID)
	switch {
	case !ok || len(st.Holders) != 1 || h.Session != c.Session || h.Weight != c.Weight || st.Waiting != 0:
		return errors.New("who was next was to hold")
	case h.Token < probeToken+tokenStep || st.Token != h.Token:
		return errors.New("the token was to be the one that was sent")
	case h.Since.After(st.Now) || st.Now.Sub(h.Since) > probeLease:
		return errors.New("the times of two commands don't fit together")
	}
	return nil
}
