package clockcheck

import "fmt"

// An Unmeasured is a server whose clock can come to matter and is not known.
type Unmeasured struct {
	Addr string // host:port
	Err  error  // why; ErrStepped if its clock was stepped meanwhile
}

func (u Unmeasured) String() string { return fmt.Sprintf("%s (%v)", u.Addr, u.Err) }
