package dsynctest

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// tokenCases test fencing tokens.
func tokenCases() []conformanceCase {
	return []conformanceCase{
		{name: "Token/GrowsOverEveryHandOver_B08", test: testTokenGrows},
		{name: "Token/LastOneStaysReadable", test: testTokenStays},
	}
}

// testTokenGrows takes a key over in every way there is: check, which sees each
// state, compares the tokens.
func testTokenGrows(e *env) {
	key, living := newID(), e.session()
	var last int64
	for i := range 24 {
		var c dsync.Claim
		var h dsync.Holder
		switch i % 4 {
		case 0: // after a release
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		case 1: // by hand-over
			first := e.claim(key, living)
			c = e.claim(key, living)
			e.hold(first)
			e.queue(c)
			e.release(first)
			h, _ = e.load(key).Holder(c.ID)
			e.release(c)
		case 2: // from the dead
			session := e.session()
			e.hold(e.claim(key, session))
			e.kill(session)
			c = e.claim(key, living)
			h = e.hold(c, session)
			e.release(c)
		case 3: // from a lapsed lease
			e.until(e.hold(e.leased(key, living, time.Millisecond)).Until)
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		}
		if h.Token < last+1024 {
			e.Fatalf("round %d: token %d after %d, want at least 1024 more", i, h.Token, last)
		}
		last = h.Token
	}
}

func testTokenStays(e *env) {
	c := e.claim(newID(), e.session())
	h := e.hold(c)
	e.release(c)
	if s := e.load(c.Key); s.Token != h.Token {
		e.Errorf("the free key's last token is %d, want %d", s.Token, h.Token)
	}
}
