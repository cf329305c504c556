package dsynchttp

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns a key or a name as the page shows it. If it has characters that can't be seen, it is quoted, with
// escapes. Without escapes, characters that change the direction of text could make one key look like another, or
// move the text after a key in front of it. Text that begins with a quote is quoted too, so that no two texts look
// the same.
func visible(s string) string {
	if strings.HasPrefix(s, `"`) || escaped(s, "") != s {
		return strconv.Quote(s)
	}
	return s
}

// escaped returns s with escapes for characters that can't be seen and are not in except.
func escaped(s, except string) string {
	seen := func(r rune) bool { return unicode.IsPrint(r) || strings.ContainsRune(except, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !seen(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if seen(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(s[:n])
		} else {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}
