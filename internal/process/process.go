// Package process names processes for people.
package process

import (
	"cmp"
	"fmt"
)

// Describe returns a process's name, followed by its process id and host, such as "worker-a (process 11 on
// host-a)". It leaves out the name if it equals the host. If nothing but the session's id is known, it
// returns the id. Unknown arguments are "" or 0.
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
