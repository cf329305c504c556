package dsynctest

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// sessionScripts test commands on sessions. A script is a state, followed by commands, each with the state afterwards.
// This is the notation:
//
//	a b~ c!          a, b and c are registered; b has a short TTL, and c has expired; all others are unknown
//	A                a session whose id is that of a in upper case
//	a:rs             the revocations r and s of a stand
//	a@xy             a observes the keys x and y
//	.                the same state as before
//	register a       a Register
//	beat a r s       a Heartbeat that removes the revocations r and s
//	expire a         an Expire, as by another session
//	unregister a     an Expire by a itself
//	lapse a          no command; the TTL of a runs out
//	revoke a r       a Revoke with the revocation r
//	observe a 3 xy   an Observe of the keys x and y, with the sequence number 3
//
// The states determine what each command must return: its error, the time that is left, and what is revoked.
func sessionScripts() []scriptRow {
	return []scriptRow{
		{name: "Register/StartsTTL", text: "; register a; a; expire a; ."},
		{name: "Register/KnownIDIsRefused", text: "a b~ c; unregister c; a b~ c!; lapse b; .; register a; .; register b; .; register c; .; " +
			"register a; .; expire a; .; expire b; a b~! c!"},
		{name: "Heartbeat/RecordsNow_B25", text: "a; beat a; .; beat a; .; beat a; .; expire a; ."},
		{name: "Heartbeat/RevivesLapsed", text: "a~; lapse a; .; beat a; .; expire a; ."},
		{name: "Heartbeat/UnknownIsExpired", text: "; beat a; .; beat a; .; register a; a"}, // its registration may be on its way
		{name: "Members/ComparesIDsExactly", text: "A; unregister a; A a!; beat A; .; beat a; ."},
		{name: "Expire/LivingIsLeftAlone", text: "a; expire a; .; expire a; .; expire a; .; beat a; ."},
		{name: "Expire/LapsedStaysExpired", text: "a~; lapse a; .; expire a; a~!; expire a; ."},
		{name: "Expire/UnknownStaysExpired", text: "; expire a; a!"},
		{name: "Unregister/ExpiredAtOnce", text: "a; unregister a; a!"},
		{name: "Unregister/UnknownStaysExpired", text: "; unregister a; a!"},
		{name: "Unregister/OnlyThatSession", text: "a b; unregister a; a! b; beat b; ."},

		{name: "Revoke/StandsUntilAHeartbeatRemovesIt", text: "a; beat a; .; revoke a r; a:r; beat a; .; beat a; .; beat a r; a; beat a; .; beat a r; ."},
		{name: "Revoke/AllThatStandAreListed", text: "a; revoke a p; a:p; beat a; .; revoke a q; a:pq; beat a; .; revoke a r; a:pqr; revoke a s; a:pqrs; " +
			"revoke a t; a:pqrst; revoke a u; a:pqrstu; revoke a v; a:pqrstuv; beat a; .; beat a t p v; a:qrsu; beat a q r s u; a; beat a; ."},
		{name: "Revoke/IsNotAddedTwice", text: "a; revoke a r; a:r; revoke a s; a:rs; revoke a r; .; beat a; .; beat a r; a:s; beat a; ."},
		{name: "Revoke/StandsThroughARegister", text: "a; revoke a r; a:r; register a; .; beat a; ."},
		{name: "Revoke/OfTheLapsedIsNoHeartbeat", text: "a~ b~; lapse a; .; lapse b; .; revoke a r; a~:r b~; revoke b r; a~:r b~:r; expire a; a~! b~:r; beat b; ."},
		{name: "Revoke/OfExpiredOrUnknown", text: "a; revoke a r; a:r; unregister a; a!; expire b; a! b!; revoke a r; .; revoke b r; .; revoke c r; .; " +
			"revoke c r; .; register c; a! b! c; beat c; ."},
		{name: "Revoke/LateHeartbeatsRemoveNoOther", text: "a; revoke a r; a:r; beat a r; a; revoke a s; a:s; beat a r; .; revoke a r; a:sr; beat a; .; " +
			"beat a r; a:s; beat a s s r; a"},

		{name: "Observe/IsFoundByEachKey", text: "a b; observe a 1 xy; a@xy b; observe b 1 y; a@xy b@y; observe a 1 xy; ."},
		{name: "Observe/ReplacesTheListBefore", text: "a b; observe a 1 x; a@x b; observe b 1 x; a@x b@x; observe a 2 y; a@y b@x; observe a 5; a b@x; " +
			"observe a 6 x; a@x b@x"},
		{name: "Observe/LateOlderOneChangesNothing", text: "a; observe a 7 x; a@x; observe a 9; a; observe a 8 xy; .; observe a 7 xy; .; observe a 1 xy; .; " +
			"observe a 10 y; a@y; observe a 9; ."},
		{name: "Observe/StaysWithItsSession", text: "a b; observe a 1 x; a@x b; revoke a r; a:r@x b; observe a 2 xy; a:r@xy b; beat a; .; beat a r; a@xy b; " +
			"expire a; .; unregister b; a@xy b!"},
		{name: "Observe/IsNoHeartbeat", text: "a; observe a 1 x; a@x; expire a; ."},
		{name: "Observe/ExpiredOrUnknown", text: "a; observe a 1 x; a@x; unregister a; a!; observe a 2 x; .; observe b 2 x; ."},
	}
}

// sessionCases returns a case for each script of sessions.
func sessionCases() []conformanceCase {
	var cases []conformanceCase
	for _, row := range sessionScripts() {
		cases = append(cases, conformanceCase{name: row.name, test: func(e *env) { e.sessionScript(row.text) }})
	}
	return cases
}

// A sessionStage has the sessions of a script, and what their state must be.
type sessionStage struct {
	*env
	ids      map[string]string    // by name
	at       map[string]time.Time // last heartbeats, by name; of the registered sessions only
	sessions map[string]actor     // by name; of the known sessions only
	keys     map[string]string    // by name
}

// An actor is a session in a state of a script.
type actor struct {
	ttl                  time.Duration
	expired              bool
	revocations, observe string // names of revocations and keys
}

func (e *env) sessionScript(text string) {
	e.Helper()
	s := &sessionStage{env: e, ids: make(map[string]string), at: make(map[string]time.Time), keys: make(map[string]string)}
	steps := strings.Split(text, ";")
	for name, a := range s.parse(steps[0]) {
		s.register(name, a.ttl, true)
	}
	s.sessions = s.parse(steps[0])
	for i := 1; i < len(steps); i += 2 {
		words := strings.Fields(steps[i])
		after := s.parse(steps[i+1])
		if s.edit(words[0], words[1], words[2:], after[words[1]]) {
			return
		}
		s.sessions = after
		s.want(steps[i])
	}
}

// actorWord matches a name and, if they follow, a short TTL, the end, revocations, and keys.
var actorWord = regexp.MustCompile(`^([a-zA-Z])(~?)(!?)(?::(\w+))?(?:@(\w+))?$`)

// parse returns the known sessions of a state.
func (s *sessionStage) parse(text string) map[string]actor {
	s.Helper()
	if strings.TrimSpace(text) == "." {
		return s.sessions
	}
	sessions := make(map[string]actor)
	for _, word := range strings.Fields(text) {
		parts := actorWord.FindStringSubmatch(word)
		if parts == nil {
			s.Fatalf("the script has a session %q", word)
		}
		a := actor{long, parts[3] != "", parts[4], parts[5]}
		if parts[2] != "" {
			a.ttl = short
		}
		sessions[parts[1]] = a
	}
	return sessions
}

func (s *sessionStage) id(name string) string {
	lower := strings.ToLower(name)
	if s.ids[lower] == "" {
		id := newID()
		s.ids[lower], s.ids[strings.ToUpper(name)] = strings.ToLower(id), strings.ToUpper(id)
	}
	return s.ids[name]
}

// key returns the key of that name, which a session holds that does not observe it.
func (s *sessionStage) key(name string) string {
	if s.keys[name] == "" {
		s.keys[name] = newID()
		s.hold(s.claim(s.keys[name], s.session()))
	}
	return s.keys[name]
}

// revoked returns the revocations of those names.
func (s *sessionStage) revoked(session, names string) (r []driver.Revocation) {
	for _, name := range names {
		r = append(r, driver.Revocation{Key: "key of " + string(name), Claim: s.id(session) + "." + string(name)})
	}
	return r
}

// reached checks that a command of a session returned the store's time, unless it must be refused.
func (s *sessionStage) reached(name string, before, at time.Time, err, refusal error, accepted bool) {
	s.Helper()
	switch after := s.now(); {
	case !accepted && !errors.Is(err, refusal):
		s.Errorf("session %s: error %v, want %v", name, err, refusal)
	case accepted && (err != nil || at.Before(before) || at.After(after)):
		s.Fatalf("session %s: %v, %v; want the store's time, from %v to %v", name, at, err, before, after)
	case accepted:
		s.at[name] = at
	}
}

func (s *sessionStage) register(name string, ttl time.Duration, accepted bool) {
	s.Helper()
	before := s.now()
	m := driver.Member{ID: s.id(name), TTL: ttl}
	if !accepted {
		m.TTL, m.Name = 2*long, "another"
	}
	at, err := s.store.Register(s.ctx, m)
	s.reached(name, before, at, err, driver.ErrSessionExists, accepted)
}

// edit sends a command of a session and checks its reply. It returns true if the rest of the script means nothing,
// because a short TTL ran out too early.
func (s *sessionStage) edit(command, name string, options []string, after actor) bool {
	s.Helper()
	is, known := s.sessions[name]
	id, lives := s.id(name), known && !is.expired
	s.until(s.at[name].Add(5 * time.Millisecond)) // so that the next heartbeat is at another time
	before := s.now()
	switch command {
	case "register":
		s.register(name, long, !known)
	case "beat":
		p, err := s.store.Heartbeat(s.ctx, id, s.revoked(name, strings.Join(options, "")))
		s.reached(name, before, p.Now, err, driver.ErrSessionExpired, lives)
		want := s.revoked(name, after.revocations)
		if len(p.Revoked) != len(want) || slices.ContainsFunc(want, func(r driver.Revocation) bool { return !slices.Contains(p.Revoked, r) }) {
			s.Fatalf("Heartbeat of %s, given %q: revoked %+v, want %+v", name, options, p.Revoked, want)
		}
	case "expire":
		left, err := s.store.Expire(s.ctx, id, false)
		end, now := s.at[name].Add(is.ttl), s.now()
		if !lives {
			end = before
		}
		if most, least := end.Sub(before), end.Sub(now); err != nil || left < 0 || left > max(most, 0) || left < least {
			s.Errorf("Expire of %s = %v, %v; want from %v to %v", name, left, err, least, most)
		}
		return left == 0 && !after.expired && is.ttl == short
	case "unregister":
		s.expire(id)
	case "lapse":
		s.until(s.at[name].Add(is.ttl))
	case "revoke":
		r := s.revoked(name, options[0])[0]
		if lives {
			s.revoke(id, r)
		} else if _, err := s.store.Revoke(s.ctx, id, r); !errors.Is(err, driver.ErrSessionExpired) {
			s.Errorf("Revoke of %s: %v, want ErrSessionExpired", name, err)
		}
	case "observe":
		var keys []string
		for _, key := range strings.Join(options[1:], "") {
			keys = append(keys, s.key(string(key)))
		}
		seq, _ := strconv.ParseInt(options[0], 10, 64)
		err := s.store.Observe(s.ctx, id, seq, keys)
		if lives && err != nil || !lives && !errors.Is(err, driver.ErrSessionExpired) {
			s.Errorf("Observe of %s, known %t: %v", name, lives, err)
		}
		for i := range keys {
			keys[i] = "changed by the caller afterwards"
		}
	default:
		s.Fatalf("the script has a command %q", command)
	}
	return false
}

// want checks the state of all sessions after a command.
func (s *sessionStage) want(command string) {
	s.Helper()
	for name := range s.ids {
		a, known := s.sessions[name]
		switch {
		case a.expired:
			s.wantExpired(s.id(name))
		case known:
			s.member(s.id(name), "is alive as after "+command, func(m driver.Member) bool {
				return !m.Expired && m.LastHeartbeat.Equal(s.at[name]) && m.TTL == a.ttl && m.Name == ""
			})
		default:
			if m, _, err := storecmd.Members(s.ctx, s.store, s.id(name)); len(m) > 0 || err != nil {
				s.Errorf("after %s, Members of the unknown %s: %+v, %v", command, name, m, err)
			}
		}
	}
	for key, id := range s.keys {
		var want []string
		for name, a := range s.sessions {
			if strings.Contains(a.observe, key) {
				want = append(want, s.id(name))
			}
		}
		s.wantObservers(id, want...)
	}
}
