package clockcheck

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

const minInterval = time.Second

// Monitor runs a [Check] at once and then every interval, which is at least 1 s. It sends a
// [Report] of each check to the channel that it returns:
//
//	for r := range reports {
//		if errors.Is(r.Err, clockcheck.ErrOffset) {
//			stop(r.Err)
//		}
//	}
//
// The channel holds the latest report only: a report that nobody has received is replaced by the
// next. A check that fails is reported like any other and does not stop the monitor. When ctx ends,
// the goroutine that runs the checks closes the channel and ends. To stop the monitor, end ctx and
// receive until the channel is closed.
//
// Monitor returns an error if interval, client or opt is invalid.
func Monitor(ctx context.Context, client *mongo.Client, interval time.Duration, opt *Options) (<-chan Report, error) {
	o, err := opt.withDefaults(client)
	if err != nil {
		return nil, err
	}
	if interval < minInterval {
		return nil, fmt.Errorf("clockcheck: interval is %v; it must be at least %v", interval, minInterval)
	}
	reports := make(chan Report, 1)
	go func() {
		defer close(reports)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			result, err := run(ctx, client, o)
			if ended(ctx) != nil {
				return // the check was cut short: its result says nothing about clocks
			}
			select {
			case <-reports: // replaced by the new report
			default:
			}
			reports <- Report{result, err} // never blocks: this is the only sender
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return reports, nil
}

// A Report holds the two results of one [Check] that a [Monitor] has run.
type Report struct {
	Result Result
	Err    error
}
