package dsynctest

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// The clock is read before and after each command. A grant's time lies between these readings, give or take lag.
// MongoDB's routers have clocks of their own, and a short Acquire uses a slightly older time.
const lag = 2 * time.Second

// A stage is the key on which a script runs, and what the key's state must be.
type stage struct {
	*env
	key      string
	kind     driver.Kind
	limit    int64
	by       string // session of the claims with small letters; it listens if the store can notify
	others   string // session of the claims with capital letters
	names    map[string]driver.Claim
	holding  []driver.Claim
	waiting  []driver.Claim
	state    driver.State // as last read
	terms    int64        // grants of the key as an election
	sealed   int64        // the last tick up to which the key is sealed
	result   string
	floor    int64                // the least token of the next grant
	values   map[string][]byte    // of the holders that have one, by id
	seqs     map[string]int64     // the last sequence number that a holder has published, by id
	ends     map[string]time.Time // of the holders that have one, by id
	lapsed   map[string]bool      // the ids of holders whose end has come
	first    map[string]int64     // the tokens of the first grants of claims that were requested again, by id
	observer *listener            // listens to changes of the key

	// The last edit: what it did to the end of a hold, and whether its state is to be read.
	moved    string // the id of a claim that it kept or extended
	span     time.Duration
	extended driver.Holder // the reply of an Extend
	woken    bool          // it was a Release with Keep that set an end
	unread   bool
}

// script runs a script on a key of its own.
func (e *env) script(kind driver.Kind, limit int64, text string) {
	e.Helper()
	s := &stage{
		env: e, key: newID(), kind: kind, limit: limit, names: make(map[string]driver.Claim), others: e.session(),
		values: make(map[string][]byte), seqs: make(map[string]int64), ends: make(map[string]time.Time),
		lapsed: make(map[string]bool), first: make(map[string]int64),
	}
	l := e.hears()
	if l != nil {
		s.by = l.session
	} else {
		s.by = e.session()
	}
	steps := strings.Split(text, ";")
	s.holding, s.waiting = s.parse(steps[0])
	for _, c := range s.holding {
		state := e.acquire(c)
		if h, ok := state.Holder(c.ID); ok {
			s.grant(c, h, state.Limit)
		} else {
			e.Fatalf("%q: %s was not granted: %+v", steps[0], c.ID, state)
		}
	}
	for i, c := range s.waiting {
		e.queue(c)
		var due []driver.Notice
		for _, h := range s.holding {
			if i == 0 && h.Yield {
				due = append(due, yields(h))
			}
		}
		if l != nil {
			e.wantNotices(due...)
		}
	}
	s.state = e.load(s.key)
	s.terms = s.state.Term
	for i := 1; i < len(steps); i += 2 {
		e.notices, e.left = nil, false
		s.moved, s.span, s.extended, s.woken = "", 0, driver.Holder{}, false
		s.unread = strings.HasPrefix(strings.TrimSpace(steps[i+1]), "?")
		words := strings.Fields(steps[i])
		if words[0] == "observe" {
			if s.observer = e.listen("", s.key); s.observer == nil {
				return
			}
		}
		joined, st := s.edit(words)
		s.want(steps[i], strings.Trim(steps[i+1], "? "), joined, st, l != nil)
	}
}

// parse returns the holders and the queue of a state.
func (s *stage) parse(text string) (holders, queue []driver.Claim) {
	if strings.TrimSpace(text) == "." {
		return s.holding, s.waiting
	}
	left, right, _ := strings.Cut(text, "|")
	for _, word := range strings.Fields(left) {
		holders = append(holders, s.named(word))
	}
	for _, word := range strings.Fields(right) {
		queue = append(queue, s.named(word))
	}
	return holders, queue
}

// claimWord matches a name of one letter and, if they follow, the weight, the limit, the tick, the kind, Yield, the
// lease and the value of the claim.
var claimWord = regexp.MustCompile(`^([a-zA-Z])(\d*)(?:/(\d+))?(?::(\d+))?(?:=(\w+))?(~?)([!?]?)('?)$`)

// named returns the claim for a word of the script. It creates the claim at the first mention of its name.
func (s *stage) named(word string) driver.Claim {
	s.Helper()
	parts := claimWord.FindStringSubmatch(word)
	if parts == nil {
		s.Fatalf("the script names a claim %q", word)
	}
	c, ok := s.names[parts[1]]
	if !ok {
		session := s.by
		if word < "a" {
			session = s.others
		}
		c = s.weighted(s.key, session, cmp.Or(number(parts[2]), 1), cmp.Or(number(parts[3]), s.limit))
		c.Kind, c.Tick, c.Yield = cmp.Or(driver.Kind(parts[5]), s.kind), number(parts[4]), parts[6] != ""
		c.Lease = map[string]time.Duration{"!": long, "?": short}[parts[7]]
		if parts[8] != "" {
			c.Value = [...]string{"$$NOW", "value of " + parts[1], strings.Repeat("\xfe", driver.MaxClaimValue)}[len(s.names)%3]
		}
		s.names[parts[1]] = c
	}
	return c
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func among(claims []driver.Claim, c driver.Claim) bool {
	return slices.ContainsFunc(claims, func(o driver.Claim) bool { return o.ID == c.ID })
}

// token returns the token of the last grant of c, or 0.
func (s *stage) token(c driver.Claim) int64 { return s.tokens[s.key].byClaim[c.ID].Token }

// leaving returns c for a Release: with its token and NoneWaiting, as a session sets them.
func (s *stage) leaving(c driver.Claim) driver.Claim {
	if c.Token = s.token(c); c.Token > 0 {
		c.NoneWaiting = s.alone[c.ID]
	}
	return c
}

// live reports whether c holds the key, and its end has not come.
func (s *stage) live(c driver.Claim) bool { return among(s.holding, c) && !s.lapsed[c.ID] }

// edit sends an edit and checks its reply, except for the state. After an Acquire it returns the claim and the state,
// so that the method want can check the state.
func (s *stage) edit(words []string) (joined driver.Claim, st *driver.State) {
	s.Helper()
	option := func(word string) bool { return slices.Contains(words[1:], word) }
	after := func(word string) string { // the word after an option
		i := slices.Index(words, word)
		return words[i+1]
	}
	c := driver.Claim{}
	if len(words) > 1 && claimWord.MatchString(words[1]) {
		c = s.named(words[1])
	}
	notAfter := s.far
	if option("late") {
		notAfter = s.state.Now.Add(-time.Second)
	}
	before := s.seen
	switch words[0] {
	case "observe":
	case "wait":
		s.until(s.now().Add(2 * time.Millisecond))
	case "expire":
		s.expire(c.Session)
	case "lapse":
		s.until(s.ends[c.ID])
		s.lapsed[c.ID] = true
	case "leave", "keep", "seal":
		l := driver.Release{Claim: s.leaving(c)}
		switch {
		case option("id"):
			l.Claim = driver.Claim{Key: c.Key, ID: c.ID}
		case option("to"):
			l.Successor = s.named(after("to")).ID
		}
		switch words[0] {
		case "keep":
			l.Keep = long
			for word, d := range map[string]time.Duration{"sooner": long / 4, "longer": 2 * long, "briefly": short} {
				if option(word) {
					l.Keep = d
				}
			}
			if end := s.ends[c.ID]; s.live(c) {
				s.moved, s.span = c.ID, l.Keep
				s.woken = end.IsZero() || s.state.Now.Add(l.Keep).Before(end)
			}
		case "seal":
			l.Seal, l.Result = number(words[2]), []byte(words[1])
		}
		s.release(words, c, l, option("early"))
		if s.live(c) && l.Seal > s.sealed {
			s.sealed, s.result = l.Seal, words[1]
		}
	case "join", "try":
		c.First = option("first")
		if option("over") {
			s.kind, s.limit = c.Kind, c.Limit
		}
		if option("again") { // the invariants expect each claim to be granted once
			s.first[c.ID] = s.token(c)
			delete(s.tokens[s.key].byClaim, c.ID)
		}
		var expired []string
		if option("naming") {
			expired = []string{newID(), s.others, newID()} // the two new ids belong to no session
		}
		state := s.acquireAs(c, words[0] == "join", notAfter, expired...)
		return c, &state
	case "discard":
		var claims []driver.Claim
		for _, word := range words[1:] {
			claims = append(claims, s.named(word))
		}
		s.noticed(driver.Claim{Key: s.key}, before, s.discard(claims...))
	case "extend":
		s.extend(words, c, option, after)
	case "publish":
		seq, value := s.seqs[c.ID]+1, words[1]
		if len(words) > 2 {
			value = strings.TrimSuffix(words[2], "empty")
		}
		if len(words) > 3 {
			seq = number(words[3])
		}
		notices, err := storecmd.Publish(s.ctx, s.store, c, seq, []byte(value))
		if s.wantErr(words, err, driver.ErrNotHeld, !s.live(c)) {
			return joined, nil
		}
		s.noticed(c, before, notices)
		if seq > s.seqs[c.ID] {
			s.values[c.ID], s.seqs[c.ID] = []byte(value), seq
		}
	case "forget":
		token := max(1, s.state.Token)
		if len(words) > 1 {
			token = s.token(c)
		}
		used := len(s.waiting) > 0 || slices.ContainsFunc(s.holding, s.live)
		forgets := !used && s.state.Kind != "" && token == s.state.Token
		if s.forget(s.key, token, forgets); forgets {
			s.terms, s.sealed, s.result = 0, 0, ""
		}
	case "mismatch":
		s.wantMismatch(c, driver.MismatchError{Key: s.key, Kind: s.kind, WantKind: c.Kind, Limit: s.limit, WantLimit: c.Limit})
	case "resize":
		s.resizes(words, option, after)
	default: // "c for a"
		old := s.named(words[2])
		c = s.named(words[0])
		state := s.join(driver.Edit{Release: &driver.Release{Claim: s.leaving(old)}, Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: notAfter}})
		if want := among(s.holding, old) || among(s.waiting, old); s.left != want {
			s.Errorf("%q: the claim was there: %t, want %t", words, s.left, want)
		}
		return c, &state
	}
	return joined, nil
}

// wantErr checks whether an edit was refused. If it was, as it should be, wantErr returns true.
func (s *stage) wantErr(words []string, err, want error, refused bool) bool {
	s.Helper()
	switch {
	case refused && !errors.Is(err, want):
		s.Fatalf("%q: error %v, want %v", words, err, want)
	case !refused && err != nil:
		s.Fatalf("%q: %v", words, err)
	}
	return refused
}

// release sends a Release. With early, it may be undone until a heartbeat says that it is committed, but only if the
// Release has no options and nobody waits for the key or observes it.
func (s *stage) release(words []string, c driver.Claim, l driver.Release, early bool) {
	s.Helper()
	found := among(s.holding, c) || among(s.waiting, c)
	refused := false
	if l.Successor != "" && l.Keep == 0 {
		found = among(s.holding, c)
		refused = found && !slices.ContainsFunc(s.waiting, func(w driver.Claim) bool { return w.ID == l.Successor })
	}
	if early {
		l.Early, l.Claim.NoneWaiting = true, true
	}
	before := s.seen
	done, err := s.store.Edit(s.ctx, driver.Edit{Release: &l})
	if s.wantErr(words, err, driver.ErrNotWaiting, refused) {
		found = false
	}
	if done.Found != found && !s.lapsed[c.ID] || refused && len(done.Notices) > 0 {
		s.Fatalf("%q: %+v, want found %t", words, done, found)
	}
	if done.Applied == (driver.OpTime{}) {
		s.noticed(c, before, done.Notices)
		return
	}
	if !early || !found || l.Keep > 0 || l.Seal > 0 || l.Successor != "" || len(s.waiting) > 0 || s.observer != nil || len(done.Notices) > 0 {
		s.Errorf("%q: %+v may be undone", words, done)
	}
	for begin := time.Now(); !s.unread; time.Sleep(20 * time.Millisecond) {
		r, err := s.store.Heartbeat(s.ctx, c.Session, nil)
		if err != nil {
			s.Fatalf("Heartbeat: %v", err)
		}
		if r.Committed.Term == done.Applied.Term && r.Committed.Time >= done.Applied.Time {
			return
		}
		if time.Since(begin) > patience {
			s.Fatalf("Heartbeat says that the log is committed up to %+v; a Release was applied at %+v %v ago", r.Committed, done.Applied, patience)
		}
	}
}

// extend sends an Extend.
func (s *stage) extend(words []string, c driver.Claim, option func(string) bool, after func(string) string) {
	s.Helper()
	held := s.live(c) && c.Lease > 0
	c.Token = s.token(c)
	switch {
	case option("late"):
		c.Token, held = s.first[c.ID], false
	case option("with"):
		c.Token, held = s.token(s.named(after("with"))), false
	case option("shorter"):
		c.Lease = time.Second
	}
	seq, copied := s.extends+1, option("more")
	if copied {
		seq = s.extends
	}
	if option("before") {
		seq--
	}
	s.extends = max(s.extends, seq)
	h, err := storecmd.Extend(s.ctx, s.store, c, seq)
	if s.wantErr(words, err, driver.ErrNotHeld, !held) {
		return
	}
	was, _ := s.state.Holder(c.ID)
	if copied && h != was {
		s.Errorf("%q: %+v, want %+v, as it was", words, h, was)
	}
	if h.Claim != c.ID || h.Token != was.Token || !h.Since.Equal(was.Since) {
		s.Errorf("%q: %+v, want all but the end as in %+v", words, h, was)
	}
	if !copied {
		s.moved, s.span, s.extended = c.ID, c.Lease, h
	}
}

// resizes sends a Resize.
func (s *stage) resizes(words []string, option func(string) bool, after func(string) string) {
	s.Helper()
	text, name, _ := strings.Cut(words[1], "=")
	z := driver.Resize{Key: s.key, Kind: cmp.Or(driver.Kind(name), s.kind), From: s.limit, Limit: number(text)}
	if option("from") {
		z.From = number(after("from"))
	}
	var mismatch *driver.MismatchError
	switch other := z.Kind != s.kind && (len(s.holding) > 0 || len(s.waiting) > 0 || s.sealed > 0); {
	case other:
		_, err := s.store.Edit(s.ctx, driver.Edit{Resize: &z})
		s.wantErr(words, err, driver.ErrMismatch, true)
		want := driver.MismatchError{Key: s.key, Kind: s.kind, WantKind: z.Kind, Limit: s.limit, WantLimit: z.Limit}
		if !errors.As(err, &mismatch) || *mismatch != want {
			s.Errorf("%q: %v, want %+v", words, err, want)
		}
	case slices.ContainsFunc(s.waiting, func(w driver.Claim) bool { return w.Weight > z.Limit }):
		done, err := s.store.Edit(s.ctx, driver.Edit{Resize: &z})
		if s.wantErr(words, err, driver.ErrRefused, true); len(done.Notices) > 0 {
			s.Errorf("%q: %+v, want no notices", words, done)
		}
	default:
		s.resizeTo(z)
		s.kind, s.limit = z.Kind, z.Limit
	}
}

// grant records a grant of c as h, after checking that its token leaves the room that it must.
func (s *stage) grant(c driver.Claim, h driver.Holder, limit int64) {
	s.Helper()
	if h.Token < s.floor {
		s.Errorf("granted %+v, want a token of at least %d", h, s.floor)
	}
	s.floor = h.Token + driver.TokenStep
	if c.Yield && c.Weight == limit {
		s.floor = h.Token + driver.TokenRoom
	}
	s.values[c.ID], s.seqs[c.ID] = nil, 0
	if c.Value != "" {
		s.values[c.ID] = []byte(c.Value)
	}
	delete(s.ends, c.ID)
	delete(s.lapsed, c.ID)
}

// wantEnd checks the end of a hold, after an edit between the states before and now.
func (s *stage) wantEnd(edit string, h driver.Holder, before, now driver.State) {
	s.Helper()
	end := s.ends[h.Claim]
	least, most := end, end
	if s.moved == h.Claim {
		least, most = before.Now.Add(s.span), now.Now.Add(s.span+time.Millisecond)
		switch {
		case end.IsZero():
		case s.extended.Claim != "": // an Extend does not shorten
			least, most = latest(least, end), latest(most, end)
		default: // a Keep does not prolong
			least, most = earliest(least, end), earliest(most, end)
		}
	}
	if h.Until.Before(least) || h.Until.After(most) || s.extended.Claim == h.Claim && !h.Until.Equal(s.extended.Until) {
		s.Errorf("%q: %+v, want an end from %v to %v, as in the reply to an Extend, %v", edit, h, least, most, s.extended.Until)
	}
	s.ends[h.Claim] = h.Until
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// want checks the key's state after an edit. After an Acquire, joined is the claim and st is the state in the reply,
// which want also checks. After other edits, st is nil.
func (s *stage) want(edit, text string, joined driver.Claim, st *driver.State, notified bool) {
	s.Helper()
	holders, queue := s.parse(text)
	if s.unread {
		s.holding, s.waiting = holders, queue
		return
	}
	notices := s.notices
	now, before := s.load(s.key), s.state
	s.wantHolders(now, holders...)
	s.wantQueue(now, queue...)
	var due []driver.Notice
	sealed, grants := now.Sealed > before.Sealed, int64(0)
	for i, h := range now.Holders {
		c := holders[i]
		if h.Session != c.Session || h.Weight != c.Weight || h.Yield != c.Yield {
			s.Errorf("%q: %s holds as %+v, want the session, the weight and Yield of %+v", edit, c.ID, h, c)
		}
		if !among(s.holding, c) {
			grants++
			s.grant(c, h, now.Limit)
			room := int64(1) // for tokens of hand-offs
			if c.Yield {
				room = s.floor - h.Token
			}
			if h.Since.Before(before.Now.Add(-lag)) || h.Since.After(now.Now.Add(lag)) ||
				i == len(holders)-1 && (now.Token < h.Token || now.Token >= h.Token+room) {
				s.Errorf("%q: granted %+v between %v and %v, the key's last token is %d", edit, h, before.Now, now.Now, now.Token)
			}
			if !strings.Contains(edit, "seal") && c.ID != joined.ID { // with Seal, a store may omit it
				due = append(due, granted(c, len(queue) > 0))
			}
		}
		s.wantEnd(edit, h, before, now)
	}
	if sealed { // wakes those that it drops, and the first that remains
		remains := false
		for _, c := range s.waiting {
			stays := among(holders, c) || among(queue, c)
			if !stays || !remains {
				due = append(due, wakes(c))
			}
			remains = remains || stays
		}
	}
	if len(queue) > 0 && queue[0].ID == joined.ID {
		for _, c := range holders {
			if c.Yield {
				due = append(due, yields(c))
			}
		}
	}
	if s.woken && len(queue) > 0 {
		due = append(due, wakes(queue[0]))
	}
	if grants == 0 && now.Token != before.Token {
		s.Errorf("%q: granted nothing, but the last token was %d and is %d", edit, before.Token, now.Token)
	}
	term := int64(0)
	if s.kind == driver.KindElection {
		s.terms += grants
		term = s.terms
	}
	if now.Term != term {
		s.Errorf("%q: term %d, want %d", edit, now.Term, term)
	}
	switch unused := before.Kind == "" && !among(holders, joined) && !among(queue, joined) && !strings.Contains(edit, "resize"); {
	case unused && (now.Kind != "" || now.Limit != 0 || now.Token != 0):
		s.Errorf("%q: %+v, want the zero State of an unused key", edit, now)
	case !unused && (now.Kind != s.kind || now.Limit != s.limit):
		s.Errorf("%q: kind %q, limit %d; want %q, %d", edit, now.Kind, now.Limit, s.kind, s.limit)
	}
	var value []byte
	for _, c := range holders {
		if v := s.values[c.ID]; v != nil {
			value = v
		}
	}
	if s.sealed > 0 {
		value = []byte(s.result)
	}
	s.wantValue(now, value)
	if now.Sealed != s.sealed {
		s.Errorf("%q: sealed up to %d, want %d", edit, now.Sealed, s.sealed)
	}
	s.wantWaiters(edit, now, queue)
	if st != nil {
		i := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.ID == joined.ID })
		var nearest []string
		if i >= 0 {
			nearest = claimIDs(queue[max(0, i-8):i])
		}
		if i < 0 && s.sealed == 0 && !among(holders, joined) {
			nearest = claimIDs(queue[:min(8, len(queue))])
		}
		s.wantWaiters(edit, *st, queue)
		if st.Kind != now.Kind || st.Limit != now.Limit || st.Term != now.Term || st.Sealed != now.Sealed || !slices.EqualFunc(st.Holders, now.Holders, sameHolder) {
			s.Errorf("%q: the reply has %+v, Load has %+v", edit, st, now)
		}
		if st.Position != i+1 || st.Waiting != len(queue) || st.Token != now.Token ||
			(i >= 0 || nearest != nil) && !slices.Equal(ahead(*st), nearest) {
			s.Errorf("%q: the reply has %+v, want position %d of %d, behind %q, and the token %d", edit, st, i+1, len(queue), nearest, now.Token)
		}
		s.wantValue(*st, value)
	}
	changed := grants > 0 || s.woken || len(holders) != len(s.holding) || !slices.Equal(claimIDs(queue), claimIDs(s.waiting)) ||
		string(now.Value) != string(before.Value) || sealed || now.Limit != before.Limit || now.Term != before.Term
	if s.notices = notices; s.observer != nil && changed {
		due = append(due, change(s.key))
		s.send()
		s.observer.wantHeard(change(s.key))
	}
	if notified {
		s.wantNotices(due...)
	}
	s.holding, s.waiting, s.state = holders, queue, now
}

// sameHolder compares all fields of two holders.
func sameHolder(a, b driver.Holder) bool {
	times := a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
	a.Since, a.Until, b.Since, b.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return times && a == b
}

// wantWaiters checks the sessions, weights and ticks of the waiters that a state shows.
func (s *stage) wantWaiters(edit string, st driver.State, queue []driver.Claim) {
	s.Helper()
	for _, w := range st.WaitersAhead {
		i := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.ID == w.Claim })
		if i < 0 || w.Session != queue[i].Session || w.Weight != queue[i].Weight || w.Tick != queue[i].Tick {
			s.Errorf("%q: waiter %+v, want the session, weight and tick of one in %+v", edit, w, queue)
		}
	}
}
