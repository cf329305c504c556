package core

// ClaimState returns the state of the claim with that number, "past", or "gone".
func (c *Core) ClaimState(number uint64) string {
	if cl := c.claims[number]; cl != nil {
		return cl.state.String()
	}
	for _, p := range c.past {
		if p.number == number {
			return "past"
		}
	}
	return "gone"
}
