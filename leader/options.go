package leader

import (
	"bytes"
	"fmt"
)

// maxValue is what a published value may have, in bytes.
const maxValue = 64 << 10

// Options are the settings of an [Election]. The zero value of each field is its
// default; a nil *Options is all defaults. How long leases are, the identity that
// is shown, metadata and the logger are the session's: see dsync.Options.
type Options struct {
	// Value is published at the start of each term of this process, for all to
	// read: an address, say. At most 64 KiB, but keep it small: some stores log it
	// with each change of the election's record. A value that can't be published
	// costs no leadership: Hooks.StoreError tells of it. Nil: nothing is published
	// but by [Election.Publish].
	Value []byte

	// Hooks are called on what happens. Nil: none.
	Hooks *Hooks
}

func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Hooks == nil {
		r.Hooks = &Hooks{}
	}
	r.Value = bytes.Clone(r.Value)
	return r, checkValue(r.Value)
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("leader: the value has %d bytes; it may have at most %d", len(value), maxValue)
	}
	return nil
}
