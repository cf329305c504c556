package mongo

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// decodeEvent returns what a change event says: the session's grants, and the
// change of a key that is watched; nothing if it is about something else. It is an
// error if the collection is gone, and with it everything.
//
// Up to MongoDB 4.4 an update by a pipeline shows as a replacement with the whole
// record, from 5.0 on as a difference where that is shorter: with a line of 40,
// the line shows as "q.3.a", "q.4.a" and so on. So what a write granted stands in
// the record as one string, which is whole in either, and which every write that
// changes the record sets or removes.
func decodeEvent(event bson.Raw, session string, watched map[string]bool) ([]dsync.Event, error) {
	switch t := text(event, "operationType"); t {
	case "insert", "replace", "update", "delete":
	case "drop", "rename", "dropDatabase", "invalidate":
		return nil, fmt.Errorf("the collection is gone: %s", t)
	default:
		return nil, nil
	}
	key, ok := strings.CutPrefix(text(event, "documentKey", "_id"), keyID(""))
	if !ok {
		return nil, nil
	}
	granted := text(event, "updateDescription", "updatedFields", "g")
	if granted == "" {
		granted = text(event, "fullDocument", "g")
	}
	var events []dsync.Event
	for grant := range strings.SplitSeq(granted, ",") {
		claim, numbers, ok := strings.Cut(grant, ":")
		if !ok || !strings.HasPrefix(claim, session+".") {
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
		events = append(events, event)
	}
	if watched[key] {
		events = append(events, dsync.Event{Type: dsync.EventChange, Key: key})
	}
	return events, nil
}

// text is the string at path, "" if there is none.
func text(doc bson.Raw, path ...string) string {
	s, _ := doc.Lookup(path...).StringValueOK()
	return s
}
