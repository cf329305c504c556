// Package mongofake provides a fake MongoDB server for tests. It speaks MongoDB's wire protocol over net.Pipe and
// returns the answers that the test supplies. It works in bubbles (testing/synctest).
package mongofake

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Two special results of an answer function:
var (
	Lost   = bson.D{{Key: "lost"}}   // the connection breaks after the command has arrived
	Silent = bson.D{{Key: "silent"}} // the command is never answered
)

// OK returns an answer with these fields.
func OK(fields ...bson.E) bson.D { return append(bson.D(fields), bson.E{Key: "ok", Value: 1}) }

// Refusal returns the answer that refuses a command with an error code.
func Refusal(code int, name string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: "as the test says"}}
}

// Hello returns the reply to hello of a replica set's only member, without the "ok"
// field.
func Hello() bson.D {
	return bson.D{
		{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "setName", Value: "rs"}, {Key: "setVersion", Value: 1},
		{Key: "hosts", Value: bson.A{"fake:27017"}}, {Key: "me", Value: "fake:27017"}, {Key: "primary", Value: "fake:27017"},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48000000}, {Key: "maxWriteBatchSize", Value: 100000},
		{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 9}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
		{Key: "topologyVersion", Value: bson.D{{Key: "processId", Value: bson.NewObjectID()}, {Key: "counter", Value: int64(1)}}},
	}
}

// A Server is a fake server and the dialer that connects to it.
type Server struct {
	answer func(name string, cmd bson.Raw) bson.D
	ended  chan struct{}
	wg     sync.WaitGroup

	mu    sync.Mutex
	dials int
	open  int
}

// New returns a server that answers each command, including the driver's own, with the result of the function answer.
// Different connections may call that function concurrently; a single connection makes one call at a time.
func New(answer func(name string, cmd bson.Raw) bson.D) *Server {
	return &Server{answer: answer, ended: make(chan struct{})}
}

// Client returns a client of the server. The client and the server end with the test. Call it inside the test's bubble.
func (s *Server) Client(t testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.MergeClientOptions(append(opts, s.ClientOptions())...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.End()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Disconnect(ctx); err != nil {
			t.Error(err)
		}
		s.Wait()
	})
	return c
}

// ClientOptions returns the options of a client that connects to s. The answer function of s should answer hello
// with Hello.
func (s *Server) ClientOptions() *options.ClientOptions {
	return options.Client().ApplyURI("mongodb://fake:27017/?replicaSet=rs").SetDialer(s).
		SetServerMonitoringMode("poll").SetConnectTimeout(10 * time.Second)
}

// End closes the connections with unanswered commands. Call it before the client disconnects.
func (s *Server) End() { close(s.ended) }

// Ended returns a channel that is closed when End is called.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Wait waits until all connections are closed.
func (s *Server) Wait() { s.wg.Wait() }

// Connections returns how many connections have been made, and how many are open.
func (s *Server) Connections() (dialled, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials, s.open
}

// DialContext connects to s.
func (s *Server) DialContext(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	s.open++
	s.wg.Add(1)
	go s.serve(there)
	return here, nil
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.wg.Done()
	}()
	for {
		name, cmd, reply, err := receive(conn)
		if err != nil {
			return
		}
		switch answer := s.answer(name, cmd); {
		case len(answer) > 0 && answer[0].Key == Lost[0].Key:
			return
		case len(answer) > 0 && answer[0].Key == Silent[0].Key:
			// Wait until the client closes the connection or the test ends.
			closed := make(chan struct{})
			go func() { _, _ = conn.Read(make([]byte, 1)); close(closed) }()
			select {
			case <-closed:
			case <-s.ended:
				conn.Close()
				<-closed
			}
			return
		default:
			if err := reply(answer); err != nil {
				return
			}
		}
	}
}

// receive reads one message, which is an OP_QUERY of the handshake or an OP_MSG. It returns a function that writes the
// reply.
func receive(conn net.Conn) (name string, cmd bson.Raw, reply func(bson.D) error, err error) {
	const opReply, opQuery, opMsg = 1, 2004, 2013
	head := make([]byte, 16)
	if _, err := io.ReadFull(conn, head); err != nil {
		return "", nil, nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head)-16)
	if _, err := io.ReadFull(conn, body); err != nil {
		return "", nil, nil, err
	}
	var prefix []byte // the part of the reply before the document
	var code uint32
	switch binary.LittleEndian.Uint32(head[12:]) {
	case opMsg:
		if cmd, err = sections(body[4:]); err != nil {
			return "", nil, nil, err
		}
		prefix, code = make([]byte, 5), opMsg
	case opQuery:
		collection := strings.IndexByte(string(body[4:]), 0)
		cmd, prefix, code = body[4+collection+1+8:], make([]byte, 20), opReply
		prefix[16] = 1
	default:
		return "", nil, nil, errors.New("the fake server does not know this kind of message")
	}
	cmd = cmd[:binary.LittleEndian.Uint32(cmd)]
	first, err := cmd.IndexErr(0)
	if err != nil {
		return "", nil, nil, err
	}
	reply = func(d bson.D) error {
		raw, err := bson.Marshal(d)
		if err != nil {
			return err
		}
		msg := binary.LittleEndian.AppendUint32(nil, uint32(16+len(prefix)+len(raw)))
		msg = binary.LittleEndian.AppendUint32(msg, 1)
		msg = append(msg, head[4:8]...)
		msg = binary.LittleEndian.AppendUint32(msg, code)
		msg = append(append(msg, prefix...), raw...)
		_, err = conn.Write(msg)
		return err
	}
	return first.Key(), cmd, reply, nil
}

// sections joins the sections of an OP_MSG to one command, in which document sequences are array fields. It decodes
// nothing, because tests send thousands of commands.
func sections(body []byte) (bson.Raw, error) {
	var fields []byte
	for len(body) > 0 {
		kind := body[0]
		size := binary.LittleEndian.Uint32(body[1:])
		part := body[1 : 1+size]
		body = body[1+size:]
		if kind == 0 {
			fields = append(fieldsOf(part), fields...)
			continue
		}
		name, documents, _ := strings.Cut(string(part[4:]), "\x00")
		var list bson.A
		for len(documents) > 0 {
			n := binary.LittleEndian.Uint32([]byte(documents))
			list = append(list, bson.Raw(documents[:n]))
			documents = documents[n:]
		}
		raw, err := bson.Marshal(bson.D{{Key: name, Value: list}})
		if err != nil {
			return nil, err
		}
		fields = append(fields, fieldsOf(raw)...)
	}
	cmd := binary.LittleEndian.AppendUint32(nil, uint32(4+len(fields)+1))
	return append(append(cmd, fields...), 0), nil
}

// fieldsOf returns the fields of a document, without its length and the zero at its end.
func fieldsOf(document []byte) []byte { return slices.Clip(document[4 : len(document)-1]) }
