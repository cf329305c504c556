package leader

import (
	"bytes"
	"fmt"
)

// maxValue is the maximum size of a published value, in bytes.
const maxValue = 64 << 10

// Options are the settings of an [Election]. The zero value of each field is its default; a nil
// *Options is all defaults. The TTL, the identity that others see, metadata and the logger are
// settings of the session: see dsync.Options.
type Options struct {
	// Value is published with each term of this process, for all to read: an address, for example.
	// Up to 256 bytes of it are part of the election: whoever sees the new leader sees its value. It
	// may have at most 64 KiB, but one of more than 256 bytes is published after the election and in
	// the background: Campaign returns, and the function of Run is called, without waiting for it. If
	// that fails, Hooks.StoreError is called, and it is tried again until it succeeds, the term ends,
	// or the store refuses it; the process leads all the same. A value that [Election.Publish] is
	// called with in the meantime takes its place. Nil: nothing is published except by Publish.
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
