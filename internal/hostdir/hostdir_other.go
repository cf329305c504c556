//go:build !linux

package hostdir

import (
	"context"
	"errors"
)

// A Dir works on Linux only: see the documentation there.
type Dir struct{}

// Open returns an error.
func Open(string) (*Dir, error) { return nil, errors.New("it needs Linux; leave it empty here") }

func (*Dir) Lock(string) (string, func(), error) { return "", nil, errors.ErrUnsupported }
func (*Dir) Dead(session, mark string) bool      { return false }
func (*Dir) Remove(session string)               {}
func (*Dir) Ended(context.Context, func()) error { return errors.ErrUnsupported }
