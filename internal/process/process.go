// Package process names processes for people.
package process

import (
	"cmp"
	"fmt"
)

// Describe names a process: by its name, followed by the process id and the host unless the name is just the
// host's, or else by its session's id. Unknown arguments are "" or 0.
func Describe(name, host string, pid int, session string) string {
	where := host
	if pid != 0 {
		where = fmt.Sprintf("process %d on %s", pid, host)
	}
	switch {
	case name == "" || name == host:
		return cmp.Or(where, session)
	case where == "":
		return name
	}
	return fmt.Sprintf("%s (%s)", name, where)
}
