package mongoclient

import "go.mongodb.org/mongo-driver/v2/bson"

// A Hello is what a server says about itself in reply to the command hello.
type Hello struct {
	SetName         string   `bson:"setName"`
	Hosts           []string `bson:"hosts"`
	Passives        []string `bson:"passives"`
	Arbiters        []string `bson:"arbiters"`
	Msg             string   `bson:"msg"`
	MaxWireVersion  int      `bson:"maxWireVersion"`
	TopologyVersion bson.Raw `bson:"topologyVersion"`
}

// MongoDB reports whether the server is MongoDB, of 4.4 or later. Other servers return no topologyVersion. If a MongoDB
// server, perhaps an old mongos, does not, it is merely treated as one of them.
func (h Hello) MongoDB() bool { return len(h.TopologyVersion) > 0 }

// Sharded reports whether the server is a mongos.
func (h Hello) Sharded() bool { return h.Msg == "isdbgrid" }

const (
	// NoticeSuffix and a number follow the collection's name in the names of those for notices.
	NoticeSuffix = ".notices."

	// DefaultNotices is the default number of collections for notices to sessions.
	DefaultNotices = 64
)
