//go:build !linux

package hostdir

import (
	"context"
	"errors"
)

// A Dir is there on Linux only, for which package hostdir is documented.
type Dir struct{}

// Open returns an error.
func Open(string) (*Dir, error) { return nil, errors.New("it needs Linux; leave it empty here") }

func (*Dir) Lock(string) (string, func(), error) { return "", nil, errors.ErrUnsupported }
func (*Dir) Dead(session, mark string) bool      { return false }
func (*Dir) Remove(session string)               {}
func (*Dir) Ended(context.Context, func()) error { return errors.ErrUnsupported }
