package dsync

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxKey is what a key may have at the most, in bytes: far above what people
// name things, far below what any database's index refuses.
const maxKey = 512

// CheckKey returns nil if key can name a lock, else an error that is [ErrKey]
// and says what would be right: 1 to 512 bytes of UTF-8 without NUL. It is for
// keys that come from outside the program.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty; it must have 1 to %d bytes", ErrKey, maxKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes; it may have at most %d", ErrKey, len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not UTF-8", ErrKey, key)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %q contains NUL; any other character will do", ErrKey, key)
	}
	return nil
}
