package program

import (
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A link is the link of a session to the store.
type link struct {
	*dsynctest.Faulty
	route  route
	mode   atomic.Uint32 // the Verb of the last call of set
	faults atomic.Int64  // requests and notices that had a fault
}

// newLink returns the link of the i-th session of p. Unless requests are made at the same instant, p alone determines
// how noise affects each of them.
func newLink(s *server, p Program, i int) *link {
	l := &link{route: route{server: s}}
	draw := rand.New(rand.NewPCG(p.hash(), uint64(i)))
	l.Faulty = dsynctest.NewFaulty(&l.route, func(r dsynctest.Request) dsynctest.Fault {
		switch v := Verb(l.mode.Load()); {
		case v == Cut:
			l.faults.Add(1)
		case v == Noise && draw.IntN(3) == 0:
			l.faults.Add(1)
			return noise(draw)
		case v == FailOver && !answers(r.Method):
			return dsynctest.Fault{LoseRequest: true}
		}
		return dsynctest.Fault{}
	})
	return l
}

// hash returns a number that depends on p alone.
func (p *Program) hash() uint64 {
	h := fnv.New64a()
	h.Write(p.src)
	return h.Sum64()
}

// set makes the link misbehave until Heal. With Cut, it loses every request. With Noise, it gives a third of the
// requests and notices a fault: they are lost, late or repeated, or their replies are lost or late. With FailOver, it
// leads to the former primary. After Heal, late requests still arrive.
func (l *link) set(v Verb) {
	l.mode.Store(uint32(v))
	switch v {
	case Cut:
		l.Cut()
	case FailOver:
		l.route.former.Store(l.route.server.former.Load())
	case Heal:
		l.route.former.Store(nil)
		l.Heal()
	}
}

// latest is the longest delay of a request by noise. It is longer than the TTL in a bubble.
const latest = 12 * time.Second

func noise(draw *rand.Rand) dsynctest.Fault {
	late := []time.Duration{time.Millisecond, time.Second, latest}[draw.IntN(3)]
	late = 1 + time.Duration(draw.Int64N(int64(late)))
	switch draw.IntN(7) {
	case 0:
		return dsynctest.Fault{LoseRequest: true}
	case 1:
		return dsynctest.Fault{LoseReply: true}
	case 2:
		return dsynctest.Fault{Delay: late}
	case 3:
		return dsynctest.Fault{ReplyDelay: late}
	case 4:
		return dsynctest.Fault{Again: late}
	case 5:
		return dsynctest.Fault{Delay: late, LoseReply: true}
	}
	return dsynctest.Fault{LoseReply: true, Again: late}
}
