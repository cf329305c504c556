package model

import "github.com/leasehold-go/leasehold/dsync/driver"

// An Effect is what an edit has done.
type Effect struct {
	// Edited is the reply, without Applied. Its notices have no addresses. If the edit may matter to observers of the
	// key, the last notice is a NoticeChange. A store leaves it out if the key has no observers.
	driver.Edited

	// Changed means that the record has changed.
	Changed bool
}

// notices returns the notices that are due after the edit e. They do not include a grant of the claim that e acquires,
// because the State in the reply shows it. A seal wakes even a waiter that has just been granted the key. The reason is
// package mongo: its reply shows the record from before the seal, without the token of the grant.
func (w *edit) notices(e driver.Edit) (notices []driver.Notice) {
	add := func(t driver.NoticeType, session, claim string) *driver.Notice {
		notices = append(notices, driver.Notice{Type: t, Session: session, Key: e.Key(), Claim: claim})
		return &notices[len(notices)-1]
	}
	own := ""
	if e.Acquire != nil {
		own = e.Acquire.Claim.ID
	}
	if len(w.woken) == 0 {
		for _, h := range w.granted {
			if h.Claim != own {
				n := add(driver.NoticeGrant, h.Session, h.Claim)
				n.Token, n.Term, n.Crowded = h.Token, h.Term, len(w.Queue) > 0
			}
		}
	}
	for _, o := range w.woken {
		add(driver.NoticeWake, o.Session, o.Claim)
	}
	switch {
	case len(w.Queue) == 0:
	case w.kept:
		add(driver.NoticeWake, w.Queue[0].Session, w.Queue[0].Claim)
	case w.Queue[0].Claim == own: // each request of the claim repeats these notices, because a notice may be lost
		for _, h := range w.Holders {
			if h.Yield {
				add(driver.NoticeYield, h.Session, h.Claim)
			}
		}
	}
	if w.changed && e.Extend == nil {
		add(driver.NoticeChange, "", "")
	}
	return notices
}
