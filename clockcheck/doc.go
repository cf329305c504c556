// Package clockcheck measures the difference between the host's clock and the clocks
// of a MongoDB deployment, each with a bound on the error.
//
//	result, err := clockcheck.Check(ctx, client, nil)
//	if err != nil {
//		log.Fatal(err) // host's clock is 1.204s behind db1:27017 (±412µs), the limit is 500ms
//	}
//	log.Print(result)
//
// A program that timestamps its data with its host's clock can call [Check] when it starts, and refuse to run if the
// clock is off. It can also run a [Monitor], which repeats the check and reports each result. The locks and elections
// of this module don't depend on hosts' clocks. But a fail-over to a server whose clock is ahead can shorten a lease.
// [Result].Spread, measured with [Options].Servers, is the greatest difference between two servers' clocks.
//
// # The bound
//
// The answer to the command hello contains the server's time, truncated to milliseconds. The server reads its clock
// after the command was sent and before the answer arrives. So one answer bounds the difference between the clocks from
// both sides, however the round trip divides between the two directions. The check takes several answers, at different
// fractions of a millisecond. It widens each answer's interval by how far the clocks may have drifted apart since that
// answer, and intersects the intervals. The bound is therefore about half of the fastest round trip plus an eighth of a
// millisecond; the error is usually much less.
//
// The check measures time with the host's monotonic clock, and compares the host's wall clock with
// it at the start and at the end. If the wall clock was stepped in between, or the machine was
// suspended, the check fails with [ErrStepped]. It fails with the same error if a server's answers
// contradict each other, which only a step of that server's clock can explain.
//
// The true difference can be outside the bound in two cases only. Either a server's clock drifts faster than
// [Options].DriftRate, or the clock is stepped during the check, by too little for the answers to show it. Such a step
// is at most 2 ms plus two round trips, usually far less. After it, the difference is outside the bound by at most the
// size of the step. Steps of the host's clock are detected if they are larger than some microseconds (on Windows, whose
// clocks tick every 15.6 ms, some tens of milliseconds).
//
// # What it costs
//
// A check sends eight hello commands ([Options].Samples) over the client's own connections. If the client spreads them
// over several mongos, the check sends up to four times as many. If the server is near, eight commands take some 10 ms.
// With [Options].Servers it also sends eight hello commands to each further server. It opens and closes two connections
// to each of these servers, one of them for the driver's own monitor. hello reads nothing from disk, takes no lock and
// needs no privilege, not even a user.
//
// # Limits
//
// The package does not set clocks: that is NTP's job. It trusts no single sample and
// gives no estimate without a bound. It does not measure hidden or priority-0 members,
// which can't become primary.
package clockcheck
