package engine

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrInvalidKey means that a string can't be used as a key.
var ErrInvalidKey = errors.New("dsync: invalid key")

// maxKey is the greatest length of a key in bytes. It is far more than people's names for keys need, and far less than
// any database allows in an index.
const maxKey = 512

// CheckKey returns nil if key can name a lock: a key must have 1 to 512 bytes of UTF-8 without NUL. Otherwise CheckKey
// returns an error that matches [ErrInvalidKey] and says what is wrong. Use it for keys that come from outside the
// program.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty; it must have 1 to %d bytes", ErrInvalidKey, maxKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes; it may have at most %d", ErrInvalidKey, len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrInvalidKey, key)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %q contains NUL; any other character will do", ErrInvalidKey, key)
	}
	return nil
}
