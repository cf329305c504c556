package leader

import (
	"bytes"
	"fmt"
	"time"
)

// maxValue is the maximum size of a published value, in bytes.
const maxValue = 64 << 10

// Options are the settings of an [Election]. The zero value of each field is its default; a nil
// *Options is all defaults. The TTL, the identity that others see and the logger are settings of the
// session: see dsync.Options.
type Options struct {
	// Value, such as an address, is published with each term of this process, for every process to
	// read. It may have at most 64 KiB. A value of up to 256 bytes is written together with the
	// election, so whoever sees the new leader also sees its value. A longer value is published in
	// the background after the election, and nothing waits for it. If publishing fails,
	// dsync.Hooks.StoreError is called, and the process still leads. The process keeps trying until
	// the value is published, [Election.Publish] replaces the value, the term ends, or the store
	// refuses the value. Nil: only Publish publishes a value.
	Value []byte

	// Preference ranks this process among the candidates: the most preferred is elected, in FIFO order among equals.
	// The preference can stand for a zone, a version or a host's size. It must be between -999,999 and 999,999. A more
	// preferred candidate does not end the term of a leader, unless the leader has YieldAfter. Within a process, all
	// elections of one name should have the same preference, because only one of them at a time waits in the store's
	// queue. Default 0.
	Preference int

	// YieldAfter, if positive, makes this process hand over to a more preferred candidate when it has led for that
	// time or longer. The term's context ends, with a cause that matches [ErrResigned] and names the candidate's
	// session. The candidate is elected as by [Election.Transfer], when the work is done or the session's grace is over.
	// YieldAfter also limits how often the leadership changes if the most preferred process fails again and again. A
	// leader that has led for YieldAfter observes the election, at the cost of [Election.Observe]. 0: never.
	YieldAfter time.Duration

	// Hooks are called when something happens. Nil: none.
	Hooks *Hooks
}

func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	var hooks Hooks
	if r.Hooks != nil {
		hooks = *r.Hooks
	}
	r.Hooks = &hooks
	r.Value = bytes.Clone(r.Value)
	if r.YieldAfter < 0 {
		return r, fmt.Errorf("leader: YieldAfter is %v; it must not be negative (0: never)", r.YieldAfter)
	}
	return r, checkValue(r.Value)
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("leader: the value has %d bytes; it may have at most %d", len(value), maxValue)
	}
	return nil
}
