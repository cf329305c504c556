package core_test

import (
	"bytes"
	"hash/fnv"
	"testing"
	"time"
)

// plainNames is a Namer under which every number is its own name.
type plainNames struct{}

func (plainNames) Number(_ byte, n uint64) uint64 { return n }
func (plainNames) Session(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// Events of a Core do not change its clone.
func TestCloneIsNotAffected(t *testing.T) {
	for i := range tableCases {
		k := &tableCases[i]
		t.Run(k.name(), func(t *testing.T) {
			r := newRig(t)
			beginnings[k.from](r)
			clone, now := r.c.Clone(), r.now
			before := clone.State(nil, now, plainNames{})
			k.do(r)
			r.pass(10 * time.Second)
			if after := clone.State(nil, now, plainNames{}); !bytes.Equal(before, after) {
				t.Error("the clone has changed")
			}
		})
	}
}
