package robfigcron_test

import (
	"context"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// ticks returns a periodic job's times in the interval (from, to]. It also checks that processes that start in between,
// one after each step, compute the same next time.
func ticks(t *testing.T, zone *time.Location, spec string, from, to time.Time, step time.Duration) (all []time.Time) {
	t.Helper()
	l, _ := newLocker(t, dsynctest.NewMemory(), robfigcron.Options{})
	c := cron.New(cron.WithLocation(zone))
	id, err := l.AddPeriodic(c, spec, "report", func(context.Context, time.Time) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	schedule := c.Entry(id).Schedule
	for next := schedule.Next(from.In(zone)); !next.After(to); next = schedule.Next(next) {
		all = append(all, next)
		for at := from; at.Before(next); at = at.Add(step) {
			if got := schedule.Next(at.In(zone)); !got.Equal(next) {
				t.Errorf("%q in %v: the tick after %v is %v, but the tick after %v is %v", spec, zone, from, next, at, got)
			}
		}
		from = next
	}
	return all
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// B43: these are the ticks when clocks are changed.
func TestTicksWhenClocksChange(t *testing.T) {
	const layout = "02 15:04 MST"
	tests := []struct {
		zone, spec, from, to string
		want                 []string
	}{
		// Summer time begins on 2 April 2000 at 02:00.
		{"America/New_York", "30 2 * * *", "2000-04-01T12:00:00Z", "2000-04-04T12:00:00Z", []string{"02 03:00 EDT", "03 02:30 EDT", "04 02:30 EDT"}},
		{"America/New_York", "*/20 2,3 * * *", "2000-04-02T00:00:00Z", "2000-04-03T00:00:00Z", []string{"02 03:00 EDT", "02 03:20 EDT", "02 03:40 EDT"}},
		{"America/New_York", "30 * * * *", "2000-04-02T06:00:00Z", "2000-04-02T09:00:00Z", []string{"02 01:30 EST", "02 03:30 EDT", "02 04:30 EDT"}},
		{"America/New_York", "@daily", "2000-04-01T12:00:00Z", "2000-04-03T12:00:00Z", []string{"02 00:00 EST", "03 00:00 EDT"}},
		// Summer time ends on 29 October 2000 at 02:00.
		{"America/New_York", "30 1 * * *", "2000-10-28T12:00:00Z", "2000-10-31T12:00:00Z", []string{"29 01:30 EDT", "30 01:30 EST", "31 01:30 EST"}},
		{"America/New_York", "*/20 1,2 * * *", "2000-10-29T00:00:00Z", "2000-10-29T12:00:00Z",
			[]string{"29 01:00 EDT", "29 01:20 EDT", "29 01:40 EDT", "29 02:00 EST", "29 02:20 EST", "29 02:40 EST"}},
		{"America/New_York", "30 * * * *", "2000-10-29T05:00:00Z", "2000-10-29T08:00:00Z", []string{"29 01:30 EDT", "29 01:30 EST", "29 02:30 EST"}},
		// The same east of Greenwich, on 25 March and 28 October 2001.
		{"Europe/Berlin", "30 2 * * *", "2001-03-24T12:00:00Z", "2001-03-26T12:00:00Z", []string{"25 03:00 CEST", "26 02:30 CEST"}},
		{"Europe/Berlin", "30 2 * * *", "2001-10-27T12:00:00Z", "2001-10-29T12:00:00Z", []string{"28 02:30 CEST", "29 02:30 CET"}},
		// Clocks can be changed at midnight, and by half an hour.
		{"America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z", []string{"04 01:00 -02", "05 00:00 -02"}},
		{"Australia/Lord_Howe", "15 2 * * *", "2020-10-03T00:00:00Z", "2020-10-05T00:00:00Z", []string{"04 02:30 +11", "05 02:15 +11"}},
		{"Australia/Lord_Howe", "45 1 * * *", "2020-04-04T00:00:00Z", "2020-04-06T00:00:00Z", []string{"05 01:45 +11", "06 01:45 +1030"}},
		// The spec's time zone is used, not the Cron's.
		{"UTC", "CRON_TZ=America/New_York 30 2 * * *", "2000-04-02T00:00:00Z", "2000-04-03T12:00:00Z", []string{"02 07:00 UTC", "03 06:30 UTC"}},
	}
	for _, tt := range tests {
		from, _ := time.Parse(time.RFC3339, tt.from)
		to, _ := time.Parse(time.RFC3339, tt.to)
		var got []string
		for _, tick := range ticks(t, zone(t, tt.zone), tt.spec, from, to, 7*time.Minute) {
			got = append(got, tick.Format(layout))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q in %s: %q, want %q", tt.spec, tt.zone, got, tt.want)
		}
	}
}

// B43: a job that runs at one time of the day has one tick each day, however the clocks are
// changed.
func TestOneTickForEachDay(t *testing.T) {
	for _, name := range []string{"UTC", "America/New_York", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza"} {
		zone := zone(t, name)
		for _, spec := range []string{"0 0 * * *", "30 0 * * *", "0 1 * * *", "45 1 * * *", "0 2 * * *", "30 2 * * *", "0 3 * * *", "59 23 * * *"} {
			from, to := time.Date(2018, 1, 1, 12, 0, 0, 0, zone), time.Date(2020, 1, 1, 12, 0, 0, 0, zone)
			const days = 730
			if n := len(ticks(t, zone, spec, from, to, 5*time.Hour)); n != days {
				t.Errorf("%q in %s has %d ticks in %d days, want one a day", spec, name, n, days)
			}
		}
	}
}
