package mongo

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// editForget performs a Forget. The reply has the record from before the command, which shows whether the
// pipeline's condition was met.
func (s *store) editForget(ctx context.Context, f driver.Forget) (driver.Edited, error) {
	var r keyRecord
	found, err := s.modify(ctx, modify{
		query:  bson.D{e("_id", keyID(f.Key))},
		update: pipeline(theShapes().forget, bson.D{e("t", f.Token)}),
		fields: bson.D{e("_id", 0), e("h", 1), e("t", 1), e("o", 1), e("now", now), e("waiting", waiting())},
		before: true,
	}, &r)
	if err != nil {
		return driver.Edited{}, failure("forget", err)
	}
	st := r.state(f.Key)
	done := driver.Edited{Found: found && st.Token == f.Token && st.Waiting == 0, Notices: s.sendable(r.change(f.Key))}
	for _, h := range st.Holders {
		if !h.Ended(st.Now) {
			done.Found = false
		}
	}
	return done, nil
}

// forgetting removes the key's seal, its number of terms and its former limits. It does so only if the key's last token
// is the given one, and nobody holds the key or waits for it.
func forgetting() []bson.D {
	gone := func(field string) bson.E { return e(field, op("$cond", "$_.ok", "$$REMOVE", "$"+field)) }
	return []bson.D{
		clean(filter(list("$h"), holds()), list("$q"), was(append(claims(), "$done", "$n", "$p"))),
		set(e("_.ok", op("$and", op("$eq", "$t", "$_.t"), op("$eq", claims(), bson.A{bson.A{}, bson.A{}})))),
		set(gone("done"), gone("n"), gone("p")),
	}
}
