package mongo

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A keyRecord has the fields of a key's record that replies can contain.
type keyRecord struct {
	Now    time.Time `bson:"now"`
	Format int       `bson:"f"` // in some replies only; pipelines check it themselves

	At       time.Time `bson:"at"` // the last change, except by a short release, Extend or Publish
	Observed time.Time `bson:"o"`  // the key counts as observed until then: see mark

	Holders []holderRecord `bson:"h"`
	Token   int64          `bson:"t"`
	Kind    string         `bson:"y"`
	Limit   int64          `bson:"c"`
	Former  []int64        `bson:"p"`
	Terms   int64          `bson:"n"`
	Done    *resultRecord  `bson:"done"`

	Position int            `bson:"position"`
	Waiting  int            `bson:"waiting"`
	Ahead    []waiterRecord `bson:"ahead"` // claims nearest ahead in the queue

	early  []driver.Notice // notices of the poll before an Acquire
	polled bool            // the reply is from a poll, which adds no claim to the queue
}

// A resultRecord is the tick up to which the key is sealed, and its result.
type resultRecord struct {
	Tick   int64  `bson:"k"`
	Result []byte `bson:"b"`
}

type holderRecord struct {
	Claim   string    `bson:"a"`
	Session string    `bson:"s"`
	Weight  int64     `bson:"w"`
	Token   int64     `bson:"t"`
	Since   time.Time `bson:"at"`
	Until   time.Time `bson:"e"`
	Yield   bool      `bson:"l"`
	Term    int64     `bson:"n"`
	Address int       `bson:"p"` // its session's address, 0 if the session does not listen
	Value   *[]byte   `bson:"b"` // the value that it has published
}

func (h *holderRecord) holder() driver.Holder {
	return driver.Holder{
		Claim: h.Claim, Session: h.Session, Weight: h.Weight, Token: h.Token,
		Since: h.Since, Until: h.Until, Yield: h.Yield,
	}
}

type waiterRecord struct {
	Claim   string `bson:"a"`
	Session string `bson:"s"`
	Weight  int64  `bson:"w"`
	Tick    int64  `bson:"k"`
	Lease   int64  `bson:"d"` // ms
	Yield   bool   `bson:"l"`
	Address int    `bson:"p"`
	Value   []byte `bson:"b"`
}

func (r *keyRecord) state(key string) driver.State {
	st := driver.State{
		Key: key, Now: r.Now, Kind: driver.Kind(r.Kind), Limit: r.Limit, Token: r.Token,
		Waiting: r.Waiting, Position: r.Position,
	}
	if st.Kind == driver.KindElection {
		st.Term = r.Terms
	}
	for _, h := range r.Holders {
		st.Holders = append(st.Holders, h.holder())
		if h.Value != nil {
			st.Value = append([]byte{}, *h.Value...) // not nil, even if empty
		}
	}
	if r.Done != nil {
		st.Sealed, st.Value = r.Done.Tick, append([]byte{}, r.Done.Result...)
	}
	for _, w := range r.Ahead {
		st.WaitersAhead = append(st.WaitersAhead, driver.Waiter{Claim: w.Claim, Session: w.Session, Weight: w.Weight, Tick: w.Tick})
	}
	return st
}

// The functions below return the fields of a key's record for a reply. In these fields, "$$NOW" has the
// same value as in the update.

// seen returns the fields of a key's state. waiting is the expression for the length of the queue.
func seen(waiting any) bson.D {
	return bson.D{
		e("_id", 0), e("h", 1), e("t", 1), e("y", 1), e("c", 1), e("n", 1), e("p", 1), e("done", 1),
		e("now", now), e("waiting", waiting),
	}
}

// seenBy returns the fields of the key's state after a command that writes the queue, with the claim's position and
// the mark of the key's observers. "ahead" has the claims nearest ahead of the claim or, if the claim does not wait,
// the head of the queue.
func seenBy(claim string) bson.D {
	position := op("$indexOfArray", "$q.a", literal(claim)) // from 0, or -1
	return append(seen(op("$size", "$q")),
		e("at", 1), e("o", 1),
		e("position", op("$add", position, 1)),
		e("ahead", let("n", position, op("$slice",
			op("$slice", "$q", op("$cond", op("$lt", "$$n", 0), maxAhead, "$$n")), -maxAhead))))
}

// waiting returns the expression for the length of the queue, which may be missing in the record.
func waiting() bson.D { return op("$size", list("$q")) }

// whom returns the fields that determine whom to notify after a command that settles the key. They show whether the
// key is observed, and which holders meet the given condition.
func whom(holder bson.D) bson.D {
	return bson.D{
		e("_id", 0), e("at", 1), e("o", 1), e("now", now), e("waiting", op("$size", "$q")),
		e("h", filter("$h", holder)),
	}
}

// granted is the condition that the command granted the key to the holder $$this.
func granted() bson.D { return op("$eq", "$$this.at", now) }

// grantedOr is the condition that the command granted the key to the holder $$this, or that $$this is the
// given claim.
func grantedOr(claim string) bson.D {
	return op("$or", granted(), op("$eq", "$$this.a", literal(claim)))
}

// whomKept returns the fields that whom returns, and the first waiter. The holders include the kept claim.
func whomKept(claim string) bson.D {
	return append(whom(grantedOr(claim)), e("ahead", queueHead(1)))
}

// whomSealed returns the fields that determine whom to notify after a seal. The fields are those of the record before
// the seal. They include the holders and the head of the queue.
func whomSealed() bson.D {
	return bson.D{e("_id", 0), e("o", 1), e("now", now), e("h", 1), e("done.k", 1), e("ahead", queueHead(maxGrants))}
}

// queueHead returns the first n waiters. At the top of a projection, "$slice" would be find's operator, so
// "$concatArrays" encloses it.
func queueHead(n int) bson.D { return op("$concatArrays", op("$slice", "$q", n)) }
