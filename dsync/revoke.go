package dsync

// revoke takes in that a claim of this presence is revoked: its holder is told,
// and has the grace. s.mu must be held.
func (p *presence) revoke(r Revocation) {
	if p.cause != nil || p.revoked[r] {
		return
	}
	if p.revoked == nil {
		p.revoked = make(map[Revocation]bool)
	}
	p.revoked[r] = true
	p.s.revoke(p, r)
}

// revoke has the claim of p given up, which only p's session can. s.mu must be
// held.
func (s *Session) revoke(p *presence, r Revocation) {
	switch h := s.holds[r.Claim]; {
	case h == nil && s.ends():
		// Close may have left it behind for the rest of its holder's grace.
	case h == nil:
		// A lease that outlived its holder, or its grant was never learnt.
		p.orphan(Claim{Key: r.Key, ID: r.Claim, Session: p.id})
	case h.state == spent:
		h.revoked = true
	case h.state == asking:
		h.revoked = true
		h.notify()
	case h.state == parked:
		h.unpark()
	default:
		h.drain(ErrRevoked)
	}
}

// given returns the revocations that were done: their claims are no more. s.mu
// must be held.
func (p *presence) given() []Revocation {
	var done []Revocation
	for r := range p.revoked {
		if p.s.holds[r.Claim] == nil {
			done = append(done, r)
		}
	}
	return done
}
