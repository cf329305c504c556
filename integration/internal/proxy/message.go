package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	headerLen  = 16
	maxMessage = 64 << 20
	opQuery    = 2004 // used only for a connection's first command
	opMsg      = 2013
)

// A message is one message of the wire protocol, including the header.
type message []byte

func (m message) int32At(i int) int32 { return int32(binary.LittleEndian.Uint32(m[i:])) }

func (m message) length() int32     { return m.int32At(0) }
func (m message) requestID() int32  { return m.int32At(4) }
func (m message) responseTo() int32 { return m.int32At(8) }
func (m message) opCode() int32     { return m.int32At(12) }

// A Command is a command on its way to the server.
type Command struct {
	Name string   // "findAndModify", "update", …
	Body bson.Raw // the command's document, including "$db"
}

// command returns the command in an OP_MSG.
func (m message) command() (Command, bool) {
	if m.opCode() != opMsg {
		return Command{}, false
	}
	body := m.body()
	first, err := body.IndexErr(0)
	if err != nil {
		return Command{}, false
	}
	return Command{Name: first.Key(), Body: body}, true
}

// body returns the document of a command or reply, or nil if there is none.
func (m message) body() bson.Raw {
	switch m.opCode() {
	case opMsg:
		for i := headerLen + 4; i+5 <= len(m); {
			doc := m.documentAt(i + 1)
			if doc == nil || m[i] == 0 {
				return doc
			}
			i += 1 + len(doc) // skip a sequence of documents; its size is at the same offset as a document's
		}
	case opQuery:
		if name := bytes.IndexByte(m[min(len(m), headerLen+4):], 0); name >= 0 {
			return m.documentAt(headerLen + 4 + name + 1 + 8)
		}
	}
	return nil
}

// documentAt returns the document that begins at i, or nil if there can't be one.
func (m message) documentAt(i int) bson.Raw {
	if i+5 > len(m) {
		return nil
	}
	size := int(m.int32At(i))
	if size < 5 || i+size > len(m) {
		return nil
	}
	return bson.Raw(m[i : i+size])
}

// shed returns an overloaded server's reply to the request with this ID.
func shed(request int32) message {
	return reply(request, bson.D{
		{Key: "ok", Value: 0}, {Key: "errmsg", Value: "the proxy sheds load"},
		{Key: "code", Value: 462}, {Key: "codeName", Value: "IngressRequestRateLimitExceeded"},
		{Key: "errorLabels", Value: bson.A{"SystemOverloadedError", "RetryableError"}},
	})
}

// m.with(field) returns the reply m with the field added.
func (m message) with(field bson.E) message {
	var body bson.D
	if err := bson.Unmarshal(m.body(), &body); err != nil {
		return m // not a reply from a server
	}
	return reply(m.responseTo(), append(body, field))
}

// reply returns a reply to the request with this ID.
func reply(request int32, doc bson.D) message {
	body, err := bson.Marshal(doc)
	if err != nil {
		panic(err) // can't happen: the document is constant, or was decoded before
	}
	m := make(message, headerLen+5, headerLen+5+len(body)) // 4 bytes of flags, and the section kind 0, which means one document
	binary.LittleEndian.PutUint32(m, uint32(cap(m)))
	binary.LittleEndian.PutUint32(m[8:], uint32(request))
	binary.LittleEndian.PutUint32(m[12:], opMsg)
	return append(m, body...)
}

// sender returns what a connection's first message says about its sender: a client's application name, a mongod's port,
// or "" if it says neither.
func (m message) sender() string {
	hello := m.body()
	if host, ok := hello.Lookup("hostInfo").StringValueOK(); ok {
		return host[strings.LastIndexByte(host, ':')+1:]
	}
	name, _ := hello.Lookup("client", "application", "name").StringValueOK()
	return name
}

// read reads one whole message.
func read(r io.Reader) (message, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := message(head[:]).length()
	if n < headerLen || n > maxMessage {
		return nil, errors.New("proxy: not a MongoDB message")
	}
	m := make(message, n)
	copy(m, head[:])
	_, err := io.ReadFull(r, m[headerLen:])
	return m, err
}

// On reports whether the command is on the collection.
func (c Command) On(db, coll string) bool {
	d, ok := c.Body.Lookup("$db").StringValueOK()
	if !ok || d != db {
		return false
	}
	first, err := c.Body.IndexErr(0)
	if err != nil {
		return false
	}
	name, ok := first.Value().StringValueOK()
	return ok && name == coll
}

// ID returns the _id in the command's query or in its first update.
func (c Command) ID() string {
	if id, ok := c.Body.Lookup("query", "_id").StringValueOK(); ok {
		return id
	}
	id, _ := c.Body.Lookup("updates", "0", "q", "_id").StringValueOK()
	return id
}
