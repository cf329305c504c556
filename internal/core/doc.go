// Package core decides what a session does. It has no goroutine, no clock and no lock, sends nothing
// and waits for nothing: [Core.Step] takes one event and returns effects, and a shell carries those out.
// So the same events always give the same effects, and every order of events can be tried: package
// internal/explore does that.
//
// One Core is one session: a registration in the store, one after another if it is lost, and the claims
// that live with it. Only Step changes it.
//
//	events                                      effects
//	Acquire, GiveUp, Done, Close: the callers   Send a command, Deliver a hold or an error to one caller, once
//	Reply to a command                          End a hold: its Lost closes
//	Noticed, ListenerReady: the listener
//	Tick: the clock reached Next
//
// # The session
//
//	none ──Acquire──► registering ──reply──► live ──deadline, or expired by the store──► none
//
// The deadline counts from before the last acknowledged heartbeat was sent: TTL·0.999 − Margin − Grace.
// When it has passed, whatever the event, the session is lost: its holds end, its waiters request again
// under the next id, and nothing is ever sent under the old one.
//
// # The claim
//
// A claim is one request of the session for a key, as the store has it. [Core.move] makes every
// transition, and this table has all of them:
//
//	state        event                           next         effect
//	joining      reply: granted                  held         Deliver
//	joining      reply: queued                   waiting      timer: poll, or a session ahead lapses
//	joining      reply: too late, or no answer   joining      again, after a pause if there was no answer
//	waiting      notice: granted                 held         Deliver
//	waiting      notice: wake; poll; lapse       joining      Send
//	joining,     given up, closing               leaving      Send a release, when no request is under way
//	  waiting
//	joining,     session lost                    gone         its caller is first in the queue again
//	  waiting
//	held         done, the next here fits        held         Deliver to the next (a hand-off)
//	held         done                            leaving      Send a release
//	held         closing, revoked                windingDown  End; timer: grace
//	held         session lost                    lost         End
//	windingDown  done, grace over                leaving      Send a release; the key stays in use here until done
//	windingDown  session lost                    lost
//	lost         done                            gone
//	leaving      answered                        left
//	leaving      no answer                       leaving      again after a pause
//	left         requests void                   gone         discarded, unless none of them can have come late
//	(unknown id in a notice or reply)            leaving      Send a release
//
// Whatever is leaving or left when the session is lost is gone: it ends with the session.
//
// A caller that gave up while its grant was on the way gets the hold all the same, and answers with Done.
package core
