// Package clockcheck tells how far the host's clock is from the clocks of a
// MongoDB deployment, with a bound within which the truth is certain.
//
//	result, err := clockcheck.Check(ctx, client, nil)
//	if err != nil {
//		log.Fatal(err) // host's clock is 1.204s behind db1:27017 (±412µs), the limit is 500ms
//	}
//	log.Print(result)
//
// A program that stamps its data with its host's clock calls [Check] when it
// starts and refuses to run if the clock is off, or has a [Monitor] that tells it
// when the clock leaves the limit. The locks and elections of this module don't
// depend on hosts' clocks. What can shorten one of their leases is a fail-over to
// a server whose clock is ahead: [Result].Spread, measured with [Options].Servers,
// says how far those are apart.
//
// # The bound
//
// A server answers the command hello with its clock, truncated to milliseconds. It
// has read its clock after the command was sent and before the answer came, so one
// answer bounds the difference of the clocks from both sides, whatever part of
// the round trip either way took. Several answers, at different fractions of a
// millisecond, are intersected, each widened by what the clocks may have drifted
// apart since. So the bound is about half of the fastest round trip plus an eighth
// of a millisecond; the error is usually much less.
//
// The time between is measured by the host's monotonic clock, and the host's wall
// clock is compared with that at the start and at the end: if it was stepped
// meanwhile, or the machine was suspended, the check fails with [ErrStepped]. It
// does as well when answers have nothing in common, which only a step of the
// server's clock explains.
//
// The truth is outside of the bound only if a server's clock runs wrong by more
// than [Options].DriftRate, or is stepped, during the check, by less than its
// answers resolve (2 ms and two round trips at most, usually far less);
// then by at most that step. Steps of the host's clock are seen down to some
// microseconds (on Windows, whose clocks tick every 15.6 ms, to some tens of
// milliseconds).
//
// # What it costs
//
// Eight hello commands ([Options].Samples) on the client's own connection, which
// take some 10 ms where the server is near; up to four times as many if the client
// spreads them over several mongos. With [Options].Servers each further server
// has two connections made and closed, one of them the driver's own monitor's, and
// eight hello commands. hello reads nothing from disk, takes no lock and needs no
// privilege, not even a user.
//
// # What is not here
//
// No setting of clocks: that is NTP's. No single sample to be trusted, and no
// estimate without a bound. No hidden or priority-0 members, which can't become
// primary.
package clockcheck
