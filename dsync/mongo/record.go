package mongo

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A keyRecord is what replies carry of a key's record.
type keyRecord struct {
	Now    time.Time `bson:"now"`
	Format int       `bson:"f"` // of Load only; pipelines guard themselves

	Holders []holderRecord `bson:"h"`
	Token   int64          `bson:"t"`
	Kind    string         `bson:"y"`
	Limit   int64          `bson:"c"`
	Former  []int64        `bson:"p"`
	Terms   int64          `bson:"n"`
	Value   *valueRecord   `bson:"v"`
	Done    *valueRecord   `bson:"done"`

	Place   int            `bson:"place"`
	Waiting int            `bson:"waiting"`
	Ahead   []waiterRecord `bson:"ahead"`
}

// A valueRecord is what the holder with the token published, or sealed the key
// with.
type valueRecord struct {
	Token int64  `bson:"t"`
	Value []byte `bson:"b"`
}

type holderRecord struct {
	Claim   string    `bson:"a"`
	Session string    `bson:"s"`
	Weight  int64     `bson:"w"`
	Token   int64     `bson:"t"`
	Since   time.Time `bson:"at"`
	Until   time.Time `bson:"e"`
	Yield   bool      `bson:"l"`
}

type waiterRecord struct {
	Claim   string `bson:"a"`
	Session string `bson:"s"`
	Weight  int64  `bson:"w"`
}

func (r *keyRecord) state(key string) dsync.State {
	st := dsync.State{
		Key: key, Now: r.Now, Kind: dsync.Kind(r.Kind), Limit: r.Limit, Token: r.Token,
		Waiting: r.Waiting, Place: r.Place,
	}
	if st.Kind == dsync.KindElection {
		st.Term = r.Terms
	}
	for _, h := range r.Holders {
		st.Holders = append(st.Holders, dsync.Holder(h))
		if r.Value != nil && r.Value.Token == h.Token {
			st.Value = append([]byte{}, r.Value.Value...) // not nil, also if it is empty
		}
	}
	if r.Done != nil {
		st.Sealed, st.Token, st.Value = true, r.Done.Token, append([]byte{}, r.Done.Value...)
	}
	for _, w := range r.Ahead {
		st.Ahead = append(st.Ahead, dsync.Waiter(w))
	}
	return st
}
