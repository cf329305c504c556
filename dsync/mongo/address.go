package mongo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A session's address is the number of the capped collection that it listens in. An insert into a collection wakes only
// the sessions that tail it. Address 0 is for notices to the observers of keys; the other addresses are for notices to
// sessions. The address is stored in the session's record and its claims, so processes need not agree on the number of
// collections.
const (
	observersAddress = 0

	// The greatest number of collections for notices to sessions.
	maxNoticeCollections = 1_000

	// noticeCollectionSize, in bytes, is enough for about nine hundred notices. A new cursor reads them all.
	noticeCollectionSize = 128 << 10
)

// longestSuffix is the length of the longest suffix in the name of a notice collection.
var longestSuffix = len(noticeCollection("", maxNoticeCollections))

// noticeCollection returns the name of the notice collection with that address.
func noticeCollection(collection string, address int) string {
	return fmt.Sprint(collection, mongoclient.NoticeSuffix, address)
}

// notifies reports whether this store sends notices and can listen.
func (s *store) notifies() bool { return !s.pollOnly && !s.readOnly && !s.server.portable }

// addressOf returns the session's address, or 0 if the session cannot listen.
func (s *store) addressOf(session string) int64 {
	if !s.notifies() || s.listenRefused.Load() {
		return 0
	}
	return s.ownAddress(session)
}

// ownAddress returns the address at which the session would listen.
func (s *store) ownAddress(session string) int64 {
	h := fnv.New32a()
	h.Write([]byte(session))
	return int64(h.Sum32()%uint32(s.noticeCollections)) + 1
}

// withAddress adds the session's address to the record, if the session can listen.
func (s *store) withAddress(record bson.D, session string) bson.D {
	if address := s.addressOf(session); address > 0 {
		return append(record, e("p", address))
	}
	return record
}

// createdCollections remembers which notice collections this store has created or found. It also remembers those that
// the store may not create or write; for these, made has the error.
type createdCollections struct {
	search sync.Once
	mu     sync.Mutex
	made   map[int]error // by address
}

func (m *createdCollections) get(address int) (err error, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err, known = m.made[address]
	return err, known
}

func (m *createdCollections) set(address int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		m.made = make(map[int]error)
	}
	m.made[address] = err
}

// createNoticeCollection creates the collection, unless it exists. It must run before the first insert, which would
// otherwise create a collection that is not capped and cannot be tailed. It waits for a majority: if a fail-over undid
// the creation, the next insert would create such a collection, too.
func (s *store) createNoticeCollection(ctx context.Context, address int) error {
	_, err := s.run(ctx, bson.D{
		e("create", noticeCollection(s.collection, address)), e("capped", true), e("size", noticeCollectionSize),
		e("writeConcern", majority(confirmWithin(ctx))),
	})
	if hasCode(err, codeNamespaceExists) {
		err = nil
	}
	if err == nil {
		s.made.set(address, nil)
	}
	return s.noteRefusal(address, err)
}

// findNoticeCollections finds the collections that other processes have created, so that this process need not create
// them before its first notice. own is the address of the session that is about to listen. After the search,
// findNoticeCollections creates the collection with that address. Even if that collection exists, the command that
// creates it waits until a majority has all earlier changes. So no fail-over can undo the creation of the collections
// that were found.
func (s *store) findNoticeCollections(ctx context.Context, own int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // short, because it delays the NoticeReady
	defer cancel()
	prefix := s.collection + mongoclient.NoticeSuffix
	raw, err := s.run(ctx, bson.D{
		e("listCollections", 1), e("filter", bson.D{e("name", bson.D{e("$gt", prefix), e("$lt", prefix+":")})}), // ':' is the character after '9'
		e("nameOnly", true), e("authorizedCollections", true), // with these, the command needs no further privilege
		e("cursor", bson.D{e("batchSize", maxNoticeCollections+1)}),
	})
	var found []struct{ Name string }
	if err != nil || batch(raw, &found) != nil || s.createNoticeCollection(ctx, own) != nil {
		return // the collections are created when needed
	}
	for _, c := range found {
		if address, err := strconv.Atoi(strings.TrimPrefix(c.Name, prefix)); err == nil {
			if _, known := s.made.get(address); !known {
				s.made.set(address, nil)
			}
		}
	}
}

// noteRefusal returns err. If the server would always refuse the command, noteRefusal first logs and records err.
func (s *store) noteRefusal(address int, err error) error {
	if refused(err) {
		s.warn(troubleOf(err), err)
		s.made.set(address, err)
	}
	return err
}

// insertNotices inserts documents into the collection. It does not wait for a majority,
// because notices may be lost.
func (s *store) insertNotices(ctx context.Context, address int, docs bson.A) error {
	err, known := s.made.get(address)
	if !known {
		err = s.createNoticeCollection(ctx, address)
	}
	if err != nil {
		return err
	}
	_, err = s.run(ctx, bson.D{
		e("insert", noticeCollection(s.collection, address)), e("documents", docs), e("writeConcern", bson.D{e("w", 1)}),
	})
	return s.noteRefusal(address, err)
}

// A trouble is a log message that explains why notices do not work, and what to do about it.
type trouble string

const polling = ": waiters poll, and holders learn of Break and ForceHold with their next heartbeat; "

const (
	noRight    trouble = "no right to send notices, or to listen for them" + polling + "grant find, insert, createCollection and convertToCapped on the collections, or set PollOnly"
	notCapped  trouble = "a collection of notices is not capped" + polling + "drop it and restart the processes"
	strictAPI  trouble = "the strict Stable API has no capped collections" + polling + "use a client that is not strict, or set PollOnly"
	impossible trouble = "the server refuses a command that notices need" + polling + "set PollOnly"
	dropped    trouble = "a collection of notices was dropped while sessions listened; it is created again"
)

// troubleOf returns the trouble that explains the error.
func troubleOf(err error) trouble {
	switch {
	case errors.Is(err, errNotCapped):
		return notCapped
	case notAllowed(err):
		return noRight
	case hasCode(err, codeAPIStrict):
		return strictAPI
	}
	return impossible
}

// warn logs each trouble once.
func (s *store) warn(t trouble, err error) {
	if _, said := s.warned.LoadOrStore(t, true); !said {
		s.log.Warn("leasehold: "+string(t), slog.String("collections", s.collection+mongoclient.NoticeSuffix+"*"), slog.Any("error", err))
	}
}
