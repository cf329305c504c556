package dsynctest

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// scripts test the effects of edits on the holders and the queue of a key. A script is a state, followed by edits,
// each with the state afterwards. This is the notation:
//
//	a2 b | c d3           a and b hold and c and d wait, in this order; a has the weight 2, and d 3
//	leave a; keep a       a Release, and one with Keep
//	leave a by id         a Release that has only the key and the id of a
//	leave a to c          a Release with the successor c
//	join e; try e         an Acquire that waits, and one that doesn't
//	join e first late     an Acquire at the head of the queue, after its NotAfter; for try, too
//	e for a               a Release of a with an Acquire of e
//	e for a late          the same, after the NotAfter of the Acquire
//	resize 5; publish a   a Resize to 5, and a Publish by a
//
// Two slashes begin another script, which runs on another key. The states determine what each edit must return:
// whether a Release found its claim, the error, the notices, and the position of a claim that joins.
func scripts() []scriptRow {
	return []scriptRow{
		{name: "Acquire/HolderMayRepeat", text: "a |; join a; a |; join a; a |; join a; a |"},
		{name: "Acquire/WaiterMayRepeat", text: "a | b c; join b; a | b c; join b; a | b c; join b; a | b c"},
		{name: "Acquire/TryIsGranted", text: "|; try a; a |; try a; a |"},
		{name: "Acquire/TryLeavesNothing", text: "a |; try b; a |; try b; a |; join c; a | c; try b; a | c; leave b; " +
			"a | c; leave a; c |; leave c; |"},
		{name: "Acquire/AfterNotAfterReportsOwnClaim", text: "a | b; join a late; a | b; join b late; a | b"},

		{name: "First/GoesToTheHead", text: "a | b c; join d first; a | d b c; join e first; a | e d b c; leave a; " +
			"e | d b c; leave e; d | b c"},
		{name: "First/WaiterKeepsItsPosition", text: "a | b; join c first; a | c b; join c first; a | c b; join c first; " +
			"a | c b; join b first; a | c b; join d first; a | d c b; join c first; a | d c b"},
		{name: "First/HolderIsNotJoinedAgain", text: "|; join a first; a |; join b; a | b; join a first; a | b; join a first; a | b"},
		{name: "First/HeavyOneHoldsUpTheQueue", limit: 3, text: "a b | c2; join d3 first; a b | d3 c2; join e; " +
			"a b | d3 c2 e; leave a; b | d3 c2 e; leave b; d3 | c2 e"},
		{name: "First/TryThatFitsIsGranted", limit: 3, text: "a2 | b3; try c2 first; a2 | b3; try d first; a2 d | b3"},
		{name: "First/AfterNotAfterJoinsNothing", text: "a | b; join c first late; a | b"},

		{name: "Queue/LightDoesNotOvertakeHeavy", limit: 3, text: "a2 | b3 c; join c; a2 | b3 c; join c; a2 | b3 c; " +
			"leave a; b3 | c; leave b; c |"},
		{name: "Queue/TryDoesNotOvertake", limit: 3, text: "a2 | b3; try c; a2 | b3"},
		{name: "Queue/WhenTheHeavyHeadLeavesTheNextAreGranted", limit: 3, text: "a2 | b3 c d; leave b; a2 c | d"},

		{name: "Release/HolderGrantsNext", text: "a | b c; leave a; b | c"},
		{name: "Release/OneOfSeveralHolders", limit: 3, text: "a b c | d; leave b; a c d |"},
		{name: "Release/FromTheQueue", text: "a | b c d; leave c; a | b d; leave b; a | d; leave d; a |; leave a; |"},
		{name: "Release/AbsentIsNoError", text: "|; leave a; | // a |; leave a; |; leave a; |; leave a; |; leave b; |"},
		{name: "Release/FindsByIDAlone", text: "a | b; leave b by id; a |; leave a by id; |"},

		{name: "Keep/FromTheQueueReleases", text: "a | b c; keep b; a | c; leave a; c |"},
		{name: "Keep/AbsentIsNoError", text: "|; keep a; | // a |; leave a; |; keep a; |; keep b; |; join c; c |; keep a; c |"},

		{name: "Replace/GrantsTheFirstWaiter", text: "a | b; c for a; b | c; leave b; c |; leave c; |"},
		{name: "Replace/GrantsItselfIfNobodyWaits", text: "a |; b for a; b |; c for b; c |; d for c; d |; leave d; |"},
		{name: "Replace/JoinsBehindAll", text: "a | b c d e f g h i j k l; m for a; b | c d e f g h i j k l m"},
		{name: "Replace/LateOnlyReleases", text: "a |; b for a late; | // a | b; c for a late; b |; leave b; |"},
		{name: "Replace/MayRepeat", text: "a | b; c for a; b | c; c for a; b | c; c for a; b | c; leave b; c |; c for a; " +
			"c |; leave c; |"},
		{name: "Replace/OfAReleasedClaim", text: "a |; leave a; |; join b; b |; c for a; b | c; leave c; b |; leave b; |"},

		{name: "Successor/GrantedInTheSameCommand", kind: driver.KindElection, text: "a | b c d e; publish a; " +
			"a | b c d e; leave a to d; d | b c e; leave d; b | c e"},
		{name: "Successor/FirstInTheQueue", kind: driver.KindElection, text: "a | b c; leave a to b; b | c; leave b to c; c |"},
		{name: "Successor/NotWaiting", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; leave c; " +
			"a | b d; leave a to c; a | b d; leave a to a; a | b d; leave a to x; a | b d; leave a; b | d"},
		{name: "Successor/OnlyFromAHolder", kind: driver.KindElection, text: "a | b c d; publish a; a | b c d; " +
			"leave b to d; a | b c d; leave x to d; a | b c d // |; leave a to b; |"},
		{name: "Successor/RepeatedOrLatePrefersNobody", kind: driver.KindElection, text: "a | b c d e; leave a to d; " +
			"d | b c e; leave a to d; d | b c e; leave a to e; d | b c e; leave a to d; d | b c e; leave d; b | c e; leave a to e; b | c e"},
		{name: "Successor/FitsOrWaitsAtTheHead", limit: 3, text: "a b2 | c d3; leave a to d; b2 | d3 c; leave b; d3 | c"},

		{name: "Resize/GrowsAndGrants", limit: 2, text: "a2 | b c d2 e; resize 5; a2 b c | d2 e; resize 7; a2 b c d2 e |"},
		{name: "Resize/ShrinksAndBlocksUntilTheyFit", limit: 5, text: "a2 b2 c |; resize 2; a2 b2 c |; join d; " +
			"a2 b2 c | d; leave a; b2 c | d; try e; b2 c | d; leave c; b2 | d; try f; b2 | d; leave b; d |"},
		{name: "Resize/HolderMayRepeat", limit: 4, text: "a4 | b; resize 2; a4 | b; join a; a4 | b; join b; a4 | b; " +
			"join a; a4 | b; leave a; b |"},
		{name: "Resize/WaitingWeightTooGreatIsRefused", limit: 4, text: "a4 | b c3; resize 2; a4 | b c3; resize 1; " +
			"a4 | b c3; resize 3; a4 | b c3; leave c; a4 | b; resize 1; a4 | b; leave a; b |"},
		{name: "Resize/RepeatedChangesNothing", limit: 2, text: "a b | c2; publish a; a b | c2; resize 3; a b | c2; " +
			"resize 3; a b | c2; resize 3; a b | c2"},
	}
}

// A scriptRow is a case of one or more scripts.
type scriptRow struct {
	name  string
	kind  driver.Kind // default KindMutex
	limit int64       // default 1
	text  string
}

// scriptCases are the cases of the scripts.
func scriptCases() []conformanceCase {
	var cases []conformanceCase
	for _, row := range scripts() {
		kind, limit := cmp.Or(row.kind, driver.KindMutex), cmp.Or(row.limit, 1)
		cases = append(cases, conformanceCase{name: row.name, test: func(e *env) {
			for text := range strings.SplitSeq(row.text, "//") {
				e.script(kind, limit, text)
			}
		}})
	}
	return cases
}

// lag is how much earlier a command's time may be than the time of the previous command on the key. MongoDB's
// routers have clocks of their own, and a short Acquire uses a slightly older time.
const lag = 2 * time.Second

// A stage is the key on which a script runs.
type stage struct {
	*env
	key       string
	kind      driver.Kind
	limit     int64
	by        string // session of all claims; it listens if the store can notify
	names     map[string]driver.Claim
	holding   []driver.Claim
	waiting   []driver.Claim
	state     driver.State // as last read
	publisher string       // claim of the last Publish
}

// script runs a script on a key of its own.
func (e *env) script(kind driver.Kind, limit int64, text string) {
	e.Helper()
	s := &stage{env: e, key: newID(), kind: kind, limit: limit, names: make(map[string]driver.Claim)}
	l := e.hears()
	if l != nil {
		s.by = l.session
	} else {
		s.by = e.session()
	}
	steps := strings.Split(text, ";")
	s.holding, s.waiting = s.parse(steps[0])
	for _, c := range s.holding {
		e.hold(c)
	}
	for _, c := range s.waiting {
		e.queue(c)
	}
	s.state = e.load(s.key)
	for i := 1; i < len(steps); i += 2 {
		e.notices, e.left = nil, false
		joined, st := s.edit(strings.Fields(steps[i]))
		s.want(steps[i], steps[i+1], joined, st, l != nil)
	}
}

// parse returns the holders and the queue of a state.
func (s *stage) parse(text string) (holders, queue []driver.Claim) {
	left, right, _ := strings.Cut(text, "|")
	for _, word := range strings.Fields(left) {
		holders = append(holders, s.named(word))
	}
	for _, word := range strings.Fields(right) {
		queue = append(queue, s.named(word))
	}
	return holders, queue
}

// named returns the claim that word names. A word is a name of one letter, which the claim's weight may follow.
func (s *stage) named(word string) driver.Claim {
	c, ok := s.names[word[:1]]
	if !ok {
		weight, err := strconv.ParseInt(word[1:], 10, 64)
		if err != nil {
			weight = 1
		}
		c = s.weighted(s.key, s.by, weight, s.limit)
		c.Kind = s.kind
		s.names[word[:1]] = c
	}
	return c
}

func among(claims []driver.Claim, c driver.Claim) bool {
	return slices.ContainsFunc(claims, func(o driver.Claim) bool { return o.ID == c.ID })
}

// leaving returns c with the fields set that a session sets in a Release.
func (s *stage) leaving(c driver.Claim) driver.Claim {
	if h, ok := s.state.Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, s.alone[c.ID]
	}
	return c
}

// edit sends an edit and checks its reply, except for the state. After an Acquire it returns the claim and the
// state, which want checks.
func (s *stage) edit(words []string) (joined driver.Claim, st *driver.State) {
	s.Helper()
	option := strings.Join(words[2:], " ")
	c := driver.Claim{}
	if words[0] != "resize" {
		c = s.named(words[1])
	}
	switch words[0] {
	case "leave", "keep":
		l := driver.Release{Claim: s.leaving(c)}
		left := among(s.holding, c) || among(s.waiting, c)
		if words[0] == "keep" {
			l.Keep = long
		}
		if option == "by id" {
			l.Claim = driver.Claim{Key: c.Key, ID: c.ID}
		}
		if name, ok := strings.CutPrefix(option, "to "); ok {
			to := s.named(name)
			l.Successor = to.ID
			if left = among(s.holding, c); left && !among(s.waiting, to) {
				if done, err := s.store.Edit(s.ctx, driver.Edit{Release: &l}); !errors.Is(err, driver.ErrNotWaiting) || len(done.Notices) > 0 {
					s.Errorf("%q: %+v, %v; want ErrNotWaiting", words, done, err)
				}
				return joined, nil
			}
		}
		s.releaseAs(l.Claim, l, left)
	case "join", "try":
		notAfter := s.far
		if slices.Contains(words, "late") {
			notAfter = s.state.Now.Add(-time.Second)
		}
		c.First = slices.Contains(words, "first")
		state := s.acquireAs(c, words[0] == "join", notAfter)
		return c, &state
	case "resize":
		limit, _ := strconv.ParseInt(words[1], 10, 64)
		if slices.ContainsFunc(s.waiting, func(w driver.Claim) bool { return w.Weight > limit }) {
			e := driver.Edit{Resize: &driver.Resize{Key: s.key, Kind: s.kind, From: s.limit, Limit: limit}}
			if done, err := s.store.Edit(s.ctx, e); !errors.Is(err, driver.ErrRefused) || len(done.Notices) > 0 {
				s.Errorf("%q: %+v, %v; want ErrRefused", words, done, err)
			}
			return joined, nil
		}
		s.resize(s.key, s.limit, limit)
		s.limit = limit
	case "publish":
		s.publish(c, []byte(words[1]))
		s.publisher = words[1]
	default: // "c for a"
		old := s.named(words[2])
		notAfter := s.far
		if len(words) > 3 {
			notAfter = s.state.Now.Add(-time.Second)
		}
		c = s.named(words[0])
		state := s.join(driver.Edit{Release: &driver.Release{Claim: s.leaving(old)}, Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: notAfter}})
		if want := among(s.holding, old) || among(s.waiting, old); s.left != want {
			s.Errorf("%q: the claim was there: %t, want %t", words, s.left, want)
		}
		return c, &state
	}
	return joined, nil
}

// want checks the key's state after an edit. If the edit was an Acquire of joined, it also checks st, the state in
// the reply.
func (s *stage) want(edit, text string, joined driver.Claim, st *driver.State, notified bool) {
	s.Helper()
	notices := s.notices
	now, before := s.load(s.key), s.state
	holders, queue := s.parse(text)
	s.wantHolders(now, holders...)
	s.wantQueue(now, queue...)
	var due []driver.Notice
	grants := int64(0)
	for i, h := range now.Holders {
		c := holders[i]
		if h.Session != c.Session || h.Weight != c.Weight || !h.Until.IsZero() {
			s.Errorf("%q: %s holds as %+v, want the session %s, the weight %d, and no end", edit, c.ID, h, c.Session, c.Weight)
		}
		if among(s.holding, c) {
			continue
		}
		grants++
		if h.Since.Before(before.Now.Add(-lag)) || h.Since.After(now.Now.Add(lag)) || i == len(holders)-1 && h.Token != now.Token {
			s.Errorf("%q: granted %+v between %v and %v, the key's last token is %d", edit, h, before.Now, now.Now, now.Token)
		}
		if c.ID != joined.ID {
			due = append(due, granted(c, len(queue) > 0))
		}
	}
	if grants == 0 && now.Token != before.Token {
		s.Errorf("%q: granted nothing, but the last token was %d and is %d", edit, before.Token, now.Token)
	}
	if s.kind == driver.KindElection && now.Term != before.Term+grants {
		s.Errorf("%q: term %d after %d and %d grants", edit, now.Term, before.Term, grants)
	}
	if now.Kind == "" != (before.Kind == "" && joined.ID == "") {
		s.Errorf("%q: the key's kind was %q and is %q", edit, before.Kind, now.Kind)
	}
	if now.Kind != "" && (now.Kind != s.kind || now.Limit != s.limit) {
		s.Errorf("%q: kind %q, limit %d; want %q, %d", edit, now.Kind, now.Limit, s.kind, s.limit)
	}
	value := []byte(nil)
	if s.publisher != "" && among(holders, s.named(s.publisher)) {
		value = []byte(s.publisher)
	}
	s.wantValue(now, value)
	if st != nil {
		i := slices.IndexFunc(queue, func(c driver.Claim) bool { return c.ID == joined.ID })
		var nearest []string
		if i >= 0 {
			nearest = claimIDs(queue[max(0, i-8):i])
		}
		s.wantHolders(*st, holders...)
		if st.Position != i+1 || st.Waiting != len(queue) || st.Token != now.Token || i >= 0 && !slices.Equal(ahead(*st), nearest) {
			s.Errorf("%q: the reply has %+v, want position %d of %d, behind %q, and the token %d", edit, st, i+1, len(queue), nearest, now.Token)
		}
		s.wantValue(*st, value)
	}
	if notified {
		s.notices = notices
		s.wantNotices(due...)
	}
	s.holding, s.waiting, s.state = holders, queue, now
}
