package leader

import (
	"bytes"
	"fmt"
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
	return r, checkValue(r.Value)
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("leader: the value has %d bytes; it may have at most %d", len(value), maxValue)
	}
	return nil
}
