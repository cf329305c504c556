package clockcheck

import "time"

// SetHostClock makes checks read the host's clocks by read.
func (o *Options) SetHostClock(read func() (wall time.Time, mono time.Duration)) { o.read = read }
