package mongo_test

import (
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The type capped simulates capped collections: it stores notices and serves tailable cursors as a server does. The
// function more answers all other commands.
type capped struct {
	more func(call) bson.D

	mu          sync.Mutex
	collections map[string]*cappedCollection
	cursors     map[int64]*cappedCursor
	last        int64             // id of the last cursor
	inserted    chan struct{}     // closed, and replaced, by each change
	instead     map[string]bson.D // answers that replace the usual ones, by the command's name
	calls       map[string]int    // number of calls, by the command's name
}

type cappedCollection struct {
	uncapped bool
	docs     []bson.Raw
	lost     int // number of notices that were overwritten
}

type cappedCursor struct {
	name   string
	filter bson.Raw
	next   int // index of the next notice, counting lost notices
	killed bson.D
}

func newCapped(more func(call) bson.D) *capped {
	return &capped{
		more: more, collections: make(map[string]*cappedCollection), cursors: make(map[int64]*cappedCursor),
		inserted: make(chan struct{}), instead: make(map[string]bson.D), calls: make(map[string]int),
	}
}

// change calls a function that may change the collections, and makes all cursors check for new notices.
func (s *capped) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.inserted)
	s.inserted = make(chan struct{})
}

// overrun forgets all but the last n notices of a collection.
func (s *capped) overrun(name string, n int) {
	s.change(func() {
		c := s.collections[name]
		over := max(len(c.docs)-n, 0)
		c.docs, c.lost = c.docs[over:], c.lost+over
	})
}

// drop drops a collection and ends all cursors on it with an error.
func (s *capped) drop(name string) {
	s.change(func() {
		delete(s.collections, name)
		for _, c := range s.cursors {
			if c.name == name {
				c.killed = refusal(175, "QueryPlanKilled")
			}
		}
	})
}

func (s *capped) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

func (s *capped) answer(c call) bson.D {
	s.mu.Lock()
	s.calls[c.name]++
	instead, found := s.instead[c.name]
	s.mu.Unlock()
	if found {
		return instead
	}
	name, _ := c.cmd.Lookup(c.name).StringValueOK()
	switch {
	case c.name == "create":
		return s.create(name, c)
	case c.name == "listCollections":
		return s.list(c)
	case c.name == "insert" && strings.Contains(name, ".notices."):
		return s.insert(name, c)
	case c.name == "find":
		return s.find(name, c)
	case c.name == "getMore":
		return s.getMore(c)
	case s.more != nil:
		return s.more(c)
	}
	return refusal(59, "CommandNotFound")
}

func (s *capped) create(name string, c call) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections[name] != nil {
		return refusal(48, "NamespaceExists")
	}
	is, _ := c.cmd.Lookup("capped").BooleanOK()
	s.collections[name] = &cappedCollection{uncapped: !is}
	return ok()
}

// list answers a listCollections command with the names of the collections in its range.
func (s *capped) list(c call) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := bson.A{}
	above, below := c.cmd.Lookup("filter", "name", "$gt").StringValue(), c.cmd.Lookup("filter", "name", "$lt").StringValue()
	for name := range s.collections {
		if above < name && name < below {
			found = append(found, bson.D{e("name", name), e("type", "collection")})
		}
	}
	return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.$cmd.listCollections"), e("firstBatch", found)}))
}

func (s *capped) insert(name string, c call) bson.D {
	docs := must(c.cmd.Lookup("documents").Array().Values())
	s.change(func() {
		coll := s.collections[name]
		if coll == nil {
			coll = &cappedCollection{uncapped: true}
			s.collections[name] = coll
		}
		for _, doc := range docs {
			var d bson.D
			if err := doc.Unmarshal(&d); err != nil {
				panic(err)
			}
			coll.docs = append(coll.docs, must(bson.Marshal(append(bson.D{e("_id", bson.NewObjectID())}, d...))))
		}
	})
	return ok(e("n", len(docs)))
}

func (s *capped) find(name string, c call) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	coll := s.collections[name]
	if coll != nil && coll.uncapped {
		return refusal(2, "BadValue")
	}
	cursor := &cappedCursor{name: name, filter: c.cmd.Lookup("filter").Document()}
	if coll == nil || len(coll.docs) == 0 {
		return s.batch(cursor, 0, "firstBatch", nil)
	}
	cursor.next = coll.lost
	s.last++
	s.cursors[s.last] = cursor
	return s.batch(cursor, s.last, "firstBatch", s.read(cursor))
}

// read returns the matching documents from the cursor's position on. s.mu must be held.
func (s *capped) read(c *cappedCursor) (docs []bson.Raw) {
	coll := s.collections[c.name]
	for _, doc := range coll.docs[c.next-coll.lost:] {
		if passes(doc, c.filter) {
			docs = append(docs, doc)
		}
	}
	c.next = coll.lost + len(coll.docs)
	return docs
}

func (s *capped) batch(c *cappedCursor, id int64, batch string, docs []bson.Raw) bson.D {
	if docs == nil {
		docs = []bson.Raw{}
	}
	return ok(e("cursor", bson.D{e("id", id), e("ns", "app."+c.name), e(batch, docs)}))
}

func (s *capped) getMore(c call) bson.D {
	id := c.cmd.Lookup("getMore").AsInt64()
	timer := time.NewTimer(time.Duration(c.cmd.Lookup("maxTimeMS").AsInt64()) * time.Millisecond)
	defer timer.Stop()
	for {
		s.mu.Lock()
		cursor, inserted := s.cursors[id], s.inserted
		coll := s.collections[cursor.name]
		switch {
		case cursor.killed != nil:
			s.mu.Unlock()
			return cursor.killed
		case cursor.next < coll.lost:
			s.mu.Unlock()
			return refusal(136, "CappedPositionLost")
		}
		docs := s.read(cursor)
		reply := s.batch(cursor, id, "nextBatch", docs)
		s.mu.Unlock()
		if len(docs) > 0 {
			return reply
		}
		select {
		case <-inserted:
		case <-timer.C:
			return reply
		}
	}
}

// passes evaluates a filter. It supports only equality and $in, which is all that this package uses.
func passes(doc, filter bson.Raw) bool {
	for _, el := range must(filter.Elements()) {
		got, _ := doc.Lookup(el.Key()).StringValueOK()
		if want, isText := el.Value().StringValueOK(); isText {
			if got != want {
				return false
			}
			continue
		}
		in := must(el.Value().Document().Lookup("$in").Array().Values())
		if !slices.ContainsFunc(in, func(v bson.RawValue) bool { return v.StringValue() == got }) {
			return false
		}
	}
	return true
}
