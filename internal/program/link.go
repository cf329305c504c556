package program

import (
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A Link is the link of a session to the store.
type Link struct {
	*dsynctest.Faulty
	noisy, cut atomic.Bool
	faults     atomic.Int64 // requests and notices that had a fault
}

// newLink returns the link of the i-th session of p. Unless requests are made at the same instant, p alone determines
// how noise affects each of them.
func newLink(store driver.Store, p Program, i int) *Link {
	l := new(Link)
	draw := rand.New(rand.NewPCG(p.hash(), uint64(i)))
	l.Faulty = dsynctest.NewFaulty(store, func(r dsynctest.Request) dsynctest.Fault {
		switch {
		case l.cut.Load():
			l.faults.Add(1)
		case l.noisy.Load() && draw.IntN(3) == 0:
			l.faults.Add(1)
			return noise(draw)
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

// Cut makes the link lose every request until Heal.
func (l *Link) Cut() {
	l.cut.Store(true)
	l.Faulty.Cut()
}

// Noise gives a third of the requests and notices a fault, until Heal: they are lost, late or repeated, or their
// replies are lost or late.
func (l *Link) Noise() { l.noisy.Store(true) }

// Heal ends Cut and Noise. Late requests still arrive.
func (l *Link) Heal() {
	l.cut.Store(false)
	l.noisy.Store(false)
	l.Faulty.Heal()
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
