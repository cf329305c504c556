//go:build !linux

package hostdir

import (
	"context"
	"errors"
)

// A Dir works only on Linux: see hostdir_linux.go.
type Dir struct{}

// Open always fails.
func Open(string) (*Dir, error) { return nil, errors.New("it needs Linux; leave it empty here") }

func (*Dir) Lock(string) (string, func(), error) { return "", nil, errors.ErrUnsupported }
func (*Dir) Dead(session, mark string) bool      { return false }
func (*Dir) Remove(session string)               {}
func (*Dir) Ended(context.Context, func()) error { return errors.ErrUnsupported }
