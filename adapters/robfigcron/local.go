package robfigcron

import (
	"time"

	"github.com/robfig/cron/v3"
)

// localTimes returns a schedule with the times of s. When clocks are changed, it neither skips nor repeats a time of
// the day, as [Locker.AddPeriodic] documents. cron's own schedule skips "30 2 * * *" on the day on which summer time
// begins. On the day on which summer time ends, it runs "30 1 * * *" or "30 2 * * *" twice.
func localTimes(s cron.Schedule) cron.Schedule {
	const all = 1<<24 - 1
	spec, ok := s.(*cron.SpecSchedule)
	if !ok || spec.Hour&all == all {
		return s
	}
	l := &local{zone: spec.Location, wall: *spec}
	l.wall.Location = time.UTC
	return l
}

// A local is a schedule of times of the day.
type local struct {
	zone *time.Location    // time.Local stands for the zone of the Cron
	wall cron.SpecSchedule // treats what the zone's clocks show as a time in UTC, where clocks are never changed
}

// Next returns the first time after t.
func (l *local) Next(t time.Time) time.Time {
	zone := l.zone
	if zone == time.Local {
		zone = t.Location()
	}
	reading := clock(t.In(zone))
	for {
		reading = l.wall.Next(reading)
		if reading.IsZero() {
			return reading
		}
		// When clocks are set back, skip the readings that they already showed before t.
		if next := first(reading, zone); next.After(t) {
			return next.In(t.Location())
		}
	}
}

// clock returns what clocks in t's zone show at t, as a time in UTC.
func clock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// first returns the time at which the zone's clocks first show the given reading. If the clocks skip it, first returns
// the time at which they are set forward.
func first(reading time.Time, zone *time.Location) time.Time {
	// If two times fit, Date may return either. If none fits, it may return a time before or after
	// the gap.
	t := time.Date(reading.Year(), reading.Month(), reading.Day(), reading.Hour(), reading.Minute(), reading.Second(), reading.Nanosecond(), zone)
	start, end := t.ZoneBounds()
	switch shown := clock(t); {
	case shown.Before(reading):
		return end
	case shown.After(reading):
		return start
	}
	if !start.IsZero() {
		_, now := t.Zone()
		_, before := start.Add(-1).Zone()
		if earlier := t.Add(time.Duration(now-before) * time.Second); earlier.Before(start) && clock(earlier).Equal(reading) {
			return earlier
		}
	}
	return t
}
