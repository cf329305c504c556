package proxy

import (
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	headerLen  = 16
	maxMessage = 64 << 20
	opMsg      = 2013
)

// A message is one message of the wire protocol, header included.
type message []byte

func (m message) int32At(i int) int32 { return int32(binary.LittleEndian.Uint32(m[i:])) }

func (m message) length() int32     { return m.int32At(0) }
func (m message) requestID() int32  { return m.int32At(4) }
func (m message) responseTo() int32 { return m.int32At(8) }
func (m message) opCode() int32     { return m.int32At(12) }

// A Command is a command on its way to the server.
type Command struct {
	Name string   // "findAndModify", "update", …
	Body bson.Raw // the command's document, "$db" included
}

// command returns the command that an OP_MSG carries.
func (m message) command() (Command, bool) {
	if m.opCode() != opMsg {
		return Command{}, false
	}
	for i := headerLen + 4; i+5 <= len(m); {
		kind, size := m[i], int(m.int32At(i+1))
		if size < 5 || i+1+size > len(m) {
			return Command{}, false
		}
		if kind == 0 {
			body := bson.Raw(m[i+1 : i+1+size])
			first, err := body.IndexErr(0)
			if err != nil {
				return Command{}, false
			}
			return Command{Name: first.Key(), Body: body}, true
		}
		i += 1 + size
	}
	return Command{}, false
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

// ID is the _id that the command is about: of its query, or of its first update.
func (c Command) ID() string {
	if id, ok := c.Body.Lookup("query", "_id").StringValueOK(); ok {
		return id
	}
	id, _ := c.Body.Lookup("updates", "0", "q", "_id").StringValueOK()
	return id
}
