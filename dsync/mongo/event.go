package mongo

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// decodeEvent returns what a change event says: what concerns the session's
// claims, and the change of a key that is watched; nothing if it is about something
// else. It is an error if the collection is gone, and with it everything.
//
// Up to MongoDB 4.4 an update by a pipeline shows as a replacement with the whole
// record, from 5.0 on as a difference where that is shorter: with a line of 40,
// the line shows as "q.3.a", "q.4.a" and so on, and a string that stayed the same
// does not show. So what concerns claims stands in strings, which are whole in
// either:
//
//	g    of a key: whom the last write granted or woke; every write that changes
//	     the record sets or removes it
//	r    of a key: who is to yield, for as long as there is a line
//	rev  of a session: its revocations
func decodeEvent(event bson.Raw, session string, watched map[string]bool) ([]dsync.Event, error) {
	switch t := text(event, "operationType"); t {
	case "insert", "replace", "update", "delete":
	case "drop", "rename", "dropDatabase", "invalidate":
		return nil, fmt.Errorf("the collection is gone: %s", t)
	default:
		return nil, nil
	}
	id := text(event, "documentKey", "_id")
	if id == sessionID(session) {
		return revokeEvents(written(event, "rev"))
	}
	key, ok := strings.CutPrefix(id, keyID(""))
	if !ok {
		return nil, nil
	}
	events, err := grantEvents(written(event, "g"), key, session)
	if err != nil {
		return nil, err
	}
	for claim := range strings.SplitSeq(written(event, "r"), ",") {
		if ownClaim(claim, session) {
			events = append(events, dsync.Event{Type: dsync.EventYield, Key: key, Claim: claim})
		}
	}
	if watched[key] {
		events = append(events, dsync.Event{Type: dsync.EventChange, Key: key})
	}
	return events, nil
}

// grantEvents reads "<claim>:<token>," and, of an election,
// "<claim>:<token>:<term>,". Token 0 only wakes. What begins with ':' is for nobody.
func grantEvents(g, key, session string) (events []dsync.Event, err error) {
	for grant := range strings.SplitSeq(g, ",") {
		claim, numbers, ok := strings.Cut(grant, ":")
		if !ok || !ownClaim(claim, session) {
			continue
		}
		event := dsync.Event{Type: dsync.EventGrant, Key: key, Claim: claim}
		token, term, counted := strings.Cut(numbers, ":")
		var err, bad error
		event.Token, err = strconv.ParseInt(token, 10, 64)
		if counted { // the term of an election
			event.Term, bad = strconv.ParseInt(term, 10, 64)
		}
		if err := cmp.Or(err, bad); err != nil {
			return nil, fmt.Errorf("grant %q of key %q: %w", grant, key, err)
		}
		if event.Token == 0 {
			event.Type = dsync.EventWake
		}
		events = append(events, event)
	}
	return events, nil
}

func revokeEvents(rev string) ([]dsync.Event, error) {
	list, err := revocations(rev)
	if err != nil {
		return nil, err
	}
	var events []dsync.Event
	for _, r := range list {
		events = append(events, dsync.Event{Type: dsync.EventRevoke, Key: r.Key, Claim: r.Claim})
	}
	return events, nil
}

// ownClaim reports whether the claim is the session's: its id begins so.
func ownClaim(claim, session string) bool { return strings.HasPrefix(claim, session+".") }

// written is the field as an event has it, whole or as a difference; "" if it has
// not.
func written(event bson.Raw, field string) string {
	if s := text(event, "updateDescription", "updatedFields", field); s != "" {
		return s
	}
	return text(event, "fullDocument", field)
}

// text is the string at path, "" if there is none.
func text(doc bson.Raw, path ...string) string {
	s, _ := doc.Lookup(path...).StringValueOK()
	return s
}
