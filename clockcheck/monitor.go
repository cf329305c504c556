package clockcheck

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

const minInterval = time.Second

// Monitor runs a [Check] at once and then every interval, which is at least 1 s,
// and reports each through the channel that it returns:
//
//	for r := range reports {
//		if errors.Is(r.Err, clockcheck.ErrOffset) {
//			stop(r.Err)
//		}
//	}
//
// The channel holds one report, the latest: one that nobody has received is
// replaced by the next. It is closed when ctx has ended, and by then the
// goroutine that ran the checks has come to its end: whoever made the monitor
// ends ctx and receives until the channel is closed. A check that can't be made is
// a report too, and the next is made as ever. The error is of interval, client
// or opt.
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
			if over(ctx) != nil {
				return // what was cut short says nothing of clocks
			}
			select {
			case <-reports: // too old by now
			default:
			}
			reports <- Report{result, err} // never blocks: nobody else sends
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return reports, nil
}
