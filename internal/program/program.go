package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// MaxOps is the maximum number of ops in a program.
const MaxOps = 64

// A Program lists what the goroutines of some sessions do.
type Program struct {
	Calm     bool      // no session is closed or cut off, no request is lost, late or repeated, and the store does not fail over
	Final    bool      // the store says State.Final
	Sessions []Setting // 2 to 4
	Ops      []Op      // the ops of all goroutines; each goroutine does its own in this order

	src []byte
}

// Decode returns the program that some bytes encode. The first byte has the number of sessions, Calm and Final.
// Then come one byte for the [Setting] of each session, and three bytes for each [Op]. Missing
// bytes count as zero; excess bytes are ignored.
func Decode(b []byte) Program {
	next := func() byte {
		if len(b) == 0 {
			return 0
		}
		c := b[0]
		b = b[1:]
		return c
	}
	p := Program{src: slices.Clone(b[:min(len(b), 5+3*MaxOps)])}
	head := next()
	p.Calm, p.Final = head&4 != 0, head&8 != 0
	for range 2 + int(head&3)%3 {
		p.Sessions = append(p.Sessions, decodeSetting(next()))
	}
	n := int(verbs)
	if p.Calm {
		n = int(Close)
	}
	for len(b) > 0 && len(p.Ops) < MaxOps {
		verb, who, how := next(), next(), next()
		p.Ops = append(p.Ops, Op{
			Verb:      Verb(int(verb) % n),
			Session:   int(who&3) % len(p.Sessions),
			Goroutine: int(who>>2&3) % 3,
			Key:       []int{0, 1, 2, 0}[who>>4&3],
			Variant:   int(who >> 6),
			Arg:       int(how & 15),
			Delay:     delays[how>>4],
		})
	}
	return p
}

// delays are the delays before ops. Many are 0; some are longer than a turn, a heartbeat interval or a TTL.
var delays = [16]time.Duration{
	0, 0, 0, 0, 0, time.Millisecond, 7 * time.Millisecond, 60 * time.Millisecond,
	250 * time.Millisecond, 700 * time.Millisecond, 1200 * time.Millisecond, 2 * time.Second,
	4 * time.Second, 8 * time.Second, 13 * time.Second, 25 * time.Second,
}

// goroutine returns the ops of one goroutine.
func (p Program) goroutine(session, goroutine int) []Op {
	var ops []Op
	for _, o := range p.Ops {
		if o.Session == session && o.Goroutine == goroutine {
			ops = append(ops, o)
		}
	}
	return ops
}

// has reports whether the program uses one of the verbs.
func (p Program) has(v ...Verb) bool {
	return slices.ContainsFunc(p.Ops, func(o Op) bool { return slices.Contains(v, o.Verb) })
}

// polling reports whether any session gets no notices.
func (p Program) polling() bool {
	return slices.ContainsFunc(p.Sessions, func(s Setting) bool { return s.Polling })
}

// String returns the program as text.
func (p Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "program.Decode([]byte(%q))\n", p.src)
	fmt.Fprintf(&b, "calm: %v, final: %v\n", p.Calm, p.Final)
	for i, s := range p.Sessions {
		fmt.Fprintf(&b, "s%d := open(%v)\n", i, s)
		for g := range 3 {
			ops := p.goroutine(i, g)
			if len(ops) == 0 {
				continue
			}
			fmt.Fprintf(&b, "go func() { // s%d.%d\n", i, g)
			for _, o := range ops {
				if o.Delay > 0 {
					fmt.Fprintf(&b, "\tsleep(%v)\n", o.Delay)
				}
				fmt.Fprintf(&b, "\t%v\n", o)
			}
			b.WriteString("}()\n")
		}
	}
	return b.String()
}

// A Setting has the options that differ between sessions.
type Setting struct {
	Linger  time.Duration
	Turn    time.Duration
	Listen  bool
	Polling bool // the store can't notify this session
}

func decodeSetting(b byte) Setting {
	return Setting{
		Linger:  []time.Duration{0, 0, 200 * time.Millisecond, 20 * time.Second}[b&3],
		Turn:    []time.Duration{0, -1, 500 * time.Millisecond, 0}[b>>4&3],
		Listen:  b&64 != 0,
		Polling: b&128 != 0,
	}
}

// Options returns the session's options.
func (s Setting) Options(ttl time.Duration) dsync.Options {
	return dsync.Options{TTL: ttl, Linger: s.Linger, HandOffTime: s.Turn, AlwaysListen: s.Listen}
}

func (s Setting) String() string {
	return fmt.Sprintf("Linger %v, Turn %v, Listen %v, polling %v", s.Linger, s.Turn, s.Listen, s.Polling)
}
