package dsynchttp

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// event encodes content as one server-sent event. The first line has the time since the anchor and the timeline's
// window, in milliseconds. Each further line is either "+" and a line of content, or "=i,n". The latter stands for n
// lines of the previous content, beginning with line i. So a change to one lock is sent as a few lines, even if the
// page is long.
func event(before, content []string, since, window time.Duration) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: content\ndata: %d %d\n", since.Milliseconds(), window.Milliseconds())
	known := make(map[string]int, len(before))
	for i, line := range before {
		known[line] = i
	}
	next := 0 // the next line of content is before[next], unless lines were added or removed here
	for i := 0; i < len(content); {
		from, ok := known[content[i]]
		if !ok {
			fmt.Fprintf(&b, "data: +%s\n", content[i])
			i, next = i+1, next+1
			continue
		}
		if next < len(before) && before[next] == content[i] { // many lines occur several times
			from = next
		}
		n := 1
		for i+n < len(content) && from+n < len(before) && before[from+n] == content[i+n] {
			n++
		}
		fmt.Fprintf(&b, "data: =%d,%d\n", from, n)
		i, next = i+n, from+n
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// lines returns the lines of content, which is HTML. It escapes carriage returns, because they
// would end a line of an event.
func lines(content []byte) []string {
	return strings.Split(strings.ReplaceAll(string(content), "\r", "&#13;"), "\n")
}
