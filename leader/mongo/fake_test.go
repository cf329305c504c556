package mongo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A fake is a server that answers only hello, over net.Pipe, which is enough for a read-only
// store. The fake server in the tests of dsync/mongo can do more.
type fake struct {
	down bool // it cannot be reached

	mu   sync.Mutex
	open int // the number of connections
	sent int // the number of commands, without the driver's own
}

func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fake) commands() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

// clientOptions returns options that declare a Stable API, because the driver then uses OP_MSG
// from the first message on.
func (f *fake) clientOptions() *options.ClientOptions {
	return options.Client().ApplyURI("mongodb://fake:27017/?directConnection=true").SetDialer(f).
		SetServerMonitoringMode("poll").SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1))
}

func (f *fake) DialContext(context.Context, string, string) (net.Conn, error) {
	if f.down {
		return nil, errors.New("the fake is down")
	}
	here, there := net.Pipe()
	f.count(&f.open, 1)
	go func() {
		defer f.count(&f.open, -1)
		defer there.Close()
		for f.answer(there) == nil {
		}
	}()
	return here, nil
}

func (f *fake) count(n *int, d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n += d
}

// answer reads one OP_MSG and answers it.
func (f *fake) answer(conn net.Conn) error {
	const header, flags = 16, 4 // lengths of the parts of an OP_MSG that precede the kind of its first section
	head := make([]byte, header)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head)-header)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	first, err := bson.Raw(body[flags+1:]).IndexErr(0)
	if err != nil {
		return err
	}
	reply := bson.D{{Key: "ok", Value: 1}}
	switch first.Key() {
	case "hello":
		reply = append(reply, bson.D{
			{Key: "isWritablePrimary", Value: true}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000},
		}...)
	case "ping", "endSessions":
	default:
		f.count(&f.sent, 1)
		reply = bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 59}, {Key: "codeName", Value: "CommandNotFound"}}
	}
	doc, err := bson.Marshal(reply)
	if err != nil {
		return err
	}
	msg := binary.LittleEndian.AppendUint32(nil, uint32(header+flags+1+len(doc)))
	msg = append(msg, 1, 0, 0, 0)
	msg = append(msg, head[4:8]...)   // the id of the request
	msg = append(msg, head[12:16]...) // OP_MSG
	msg = append(msg, make([]byte, flags+1)...)
	_, err = conn.Write(append(msg, doc...))
	return err
}
