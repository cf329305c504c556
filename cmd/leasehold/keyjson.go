package main

import (
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/dsync"
)

// A keyJSON is a key's status for programs: see jsonHelp.
type keyJSON struct {
	Key    string `json:"key"`
	Now    string `json:"now"`
	Kind   string `json:"kind"`
	Held   bool   `json:"held"`
	Sealed bool   `json:"sealed"`
	Limit  int64  `json:"limit"`
	Token  int64  `json:"token"`
	Term   int64  `json:"term"`
	valueJSON
	Holders []ownerJSON `json:"holders"`
	Waiting int         `json:"waiting"`
	Line    []ownerJSON `json:"line"`
}

// A valueJSON is what was published: one of the two, or none.
type valueJSON struct {
	Value  *string `json:"value,omitempty"`
	Base64 []byte  `json:"value_base64,omitempty"`
}

// An ownerJSON is a holder, or one in line.
type ownerJSON struct {
	Claim string `json:"claim"`
	processJSON
	Weight int64   `json:"weight"`
	Seen   string  `json:"seen,omitempty"`
	TTL    float64 `json:"ttl_ms,omitempty"`
	*holdJSON
}

// A processJSON is what a process has told of itself.
type processJSON struct {
	Session string            `json:"session"`
	Name    string            `json:"name"`
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	App     string            `json:"app"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// A holdJSON is what a holder has and one in line has not.
type holdJSON struct {
	Token   int64  `json:"token"`
	Since   string `json:"since"`
	Until   string `json:"until"`
	Renewed bool   `json:"renewed"`
	Lapsed  bool   `json:"lapsed"`
	Yields  bool   `json:"yields"`
}

const jsonHelp = `With --json each line is an object. Times are the server's, in RFC 3339, UTC, with
milliseconds; fields ending in _ms are milliseconds. Fields may be added, and none
will be renamed or removed.

  key, kind      kind is mutex, rwmutex, semaphore, once, election, or "" of a key
                 that the store has no record of
  now            when this was so
  held           somebody holds it whose time is not over
  sealed         a once that is done, for ever
  limit          what holders may have together: 1 of a mutex, a semaphore's size
  token          the last fencing token given out, 0 if none
  term           of an election: how many there were
  value          what a leader published or a once resulted in, if it is UTF-8;
  value_base64   if it is not. Neither: nothing
  waiting        how many wait in line
  holders, line  who they are, in order; of the line the first 8, with --exact 1000:
      claim, session, weight    ids in the store; how much of limit
      name, host, pid, app, meta  as the process has told
      seen, ttl_ms              its last heartbeat, and how long that counts
    and of a holder:
      token, since, until       until: the end of its lease, or when it lapses
      renewed                   until moves on with each heartbeat
      lapsed                    until has passed: the next to ask gets the key
      yields                    it may be kept without being in use
`

func newKeyJSON(st dsync.Status) keyJSON {
	k := keyJSON{
		Key: st.Key, Now: stamp(st.Now), Kind: string(st.Kind), Held: st.Held(), Sealed: st.Sealed,
		Limit: st.Limit, Token: st.Token, Term: st.Term, valueJSON: newValueJSON(st.Value), Waiting: st.Waiting,
		Holders: []ownerJSON{}, Line: []ownerJSON{},
	}
	for _, h := range st.Holders {
		k.Holders = append(k.Holders, newHolderJSON(h))
	}
	for _, w := range st.Line {
		k.Line = append(k.Line, newOwnerJSON(w))
	}
	return k
}

func newHolderJSON(h dsync.Owner) ownerJSON {
	o := newOwnerJSON(h)
	o.holdJSON = &holdJSON{h.Token, stamp(h.Since), stamp(h.Until), h.Renewed, h.Lapsed, h.Yields}
	return o
}

func newOwnerJSON(o dsync.Owner) ownerJSON {
	return ownerJSON{
		Claim: o.Claim, processJSON: processJSON{o.Session, o.Name, o.Host, o.PID, o.App, o.Meta},
		Weight: o.Weight, Seen: stamp(o.Seen), TTL: milliseconds(o.TTL),
	}
}

func newValueJSON(value []byte) (v valueJSON) {
	switch {
	case value == nil:
	case utf8.Valid(value):
		text := string(value)
		v.Value = &text
	default:
		v.Base64 = value
	}
	return v
}
