package program

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Setting is what differs between sessions.
type Setting struct {
	Linger   time.Duration
	HandOffs int
	Turn     time.Duration
	Listen   bool
	Polling  bool // the store can't notify this session
}

func decodeSetting(b byte) Setting {
	return Setting{
		Linger:   []time.Duration{0, 0, 200 * time.Millisecond, 20 * time.Second}[b&3],
		HandOffs: []int{0, -1, 1, 3}[b>>2&3],
		Turn:     []time.Duration{0, -1, 500 * time.Millisecond, 0}[b>>4&3],
		Listen:   b&64 != 0,
		Polling:  b&128 != 0,
	}
}

// Options returns the session's options.
func (s Setting) Options(ttl time.Duration) dsync.Options {
	return dsync.Options{TTL: ttl, Linger: s.Linger, MaxHandOffs: s.HandOffs, HandOffTime: s.Turn, AlwaysListen: s.Listen}
}

func (s Setting) String() string {
	return fmt.Sprintf("Linger %v, HandOffs %d, Turn %v, Listen %v, polling %v", s.Linger, s.HandOffs, s.Turn, s.Listen, s.Polling)
}
