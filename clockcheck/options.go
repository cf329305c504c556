package clockcheck

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	defaultLimit     = 500 * time.Millisecond
	defaultSamples   = 8
	maxSamples       = 1000
	defaultDriftRate = 1e-3
	defaultTimeout   = 10 * time.Second
)

// Options are the settings of [Check] and [Monitor]. The zero value of each field
// is its default; a nil *Options means all defaults.
type Options struct {
	// Limit is the greatest acceptable difference between the host's clock and any
	// server's. Default 500 ms; a negative one is rejected.
	Limit time.Duration

	// NoLimit measures without judging: neither ErrOffset nor ErrUndecided is
	// returned. Limit must be zero then.
	NoLimit bool

	// Samples is the number of requests to each server. The bound is about half the
	// round-trip time plus 1 ms/Samples. Default 8, at most 1,000.
	Samples int

	// Servers makes the check measure every server whose clock can come to matter, each
	// over a connection of its own: the members of the replica set that can become
	// primary, as listed by the server that the client talks to; on a sharded cluster
	// every mongos that Servers.Hosts lists. Pass the options that the client was made
	// with. Of these the check uses what concerns the connection (authentication, TLS,
	// dialer, time-outs, API version) and the monitors of commands and pools. Default:
	// only the server that the client talks to is measured.
	Servers *options.ClientOptions

	// DriftRate is how much faster or slower than the host's clock a server's clock may
	// run, as a fraction less than 0.1. Default 0.001: both clocks are slewed by the
	// kernel, each at its fastest (500 ppm), in opposite directions. While chrony
	// corrects a large error the rate may reach 0.083 (its maxslewrate).
	DriftRate float64

	// Timeout bounds the measurement of each server, connecting included. Default 10 s.
	Timeout time.Duration

	read func() (wall time.Time, mono time.Duration) // the host's clocks; set by tests only
}

// withDefaults returns o with every zero field replaced by its default, or an
// error that says what is wrong and what would be right.
func (o *Options) withDefaults(client *mongo.Client) (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	switch {
	case client == nil:
		return r, errors.New("clockcheck: the client is nil; pass one, as of mongo.Connect")
	case r.Limit < 0:
		return r, fmt.Errorf("clockcheck: Limit is %v; it must be positive (0 means %v; to measure without one set NoLimit)", r.Limit, defaultLimit)
	case r.NoLimit && r.Limit > 0:
		return r, fmt.Errorf("clockcheck: Limit is %v and NoLimit is set; set one of them", r.Limit)
	case r.Samples < 0 || r.Samples > maxSamples:
		return r, fmt.Errorf("clockcheck: Samples is %d; it must be 1 to %d (0 means %d)", r.Samples, maxSamples, defaultSamples)
	case !(r.DriftRate >= 0 && r.DriftRate < 0.1): // NaN neither
		return r, fmt.Errorf("clockcheck: DriftRate is %v; it must be positive and less than 0.1 (0 means %v)", r.DriftRate, defaultDriftRate)
	case r.Timeout < 0:
		return r, fmt.Errorf("clockcheck: Timeout is %v; it must be positive (0 means %v)", r.Timeout, defaultTimeout)
	}
	if r.Servers != nil {
		if err := r.Servers.Validate(); err != nil {
			return r, fmt.Errorf("clockcheck: Servers: %w", err)
		}
		if l := r.Servers.LoadBalanced; l != nil && *l {
			return r, errors.New("clockcheck: Servers are behind a load balancer, so none can be reached by itself; leave Servers nil")
		}
	}
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	if r.Samples == 0 {
		r.Samples = defaultSamples
	}
	if r.DriftRate == 0 {
		r.DriftRate = defaultDriftRate
	}
	if r.Timeout == 0 {
		r.Timeout = defaultTimeout
	}
	return r, nil
}
