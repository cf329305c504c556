package clockcheck

import "time"

// SetHostClock makes checks read the host's clocks with the given function.
func (o *Options) SetHostClock(read func() (wall time.Time, mono time.Duration)) { o.read = read }

// A Trial does the arithmetic of a check without a server.
type Trial struct {
	Rate float64
	e    estimate
}

// Add takes a sample into account and returns by how much it contradicts the earlier ones.
func (t *Trial) Add(sent, got, server time.Duration) (stepped time.Duration) {
	return t.e.add(sample{sent: sent, got: got, server: server}, t.Rate)
}

// At returns the estimate of the server's clock less the monotonic one, for the given moment.
func (t *Trial) At(at time.Duration) (mid, bound time.Duration) {
	return t.e.later(at, t.Rate).middle()
}
