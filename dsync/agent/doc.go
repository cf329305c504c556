// Package agent lets programs in any language use the locks and elections of a session over HTTP: a lock is an open
// response.
//
//	http.Serve(listener, agent.New(locks, nil)) // locks is a *dsync.Session
//
// To serve it without writing a program, use the command leasehold agent. A client in a shell:
//
//	$ curl -sN 'http://localhost:7474/v1/locks/invoices?wait=30s'
//	{"held":"invoices","id":"5ICLU…","token":1838831318501376,"left_ms":26470,"unix_ms":1793498400123,"grace_ms":3000}
//	{"left_ms":26470,"unix_ms":1793498405123}
//	^C
//
// The lock is held for as long as the client keeps the request open. When the client closes its connection, or dies and
// its kernel closes it, the lock is released at once. To close only the half that sends, as nc -N does, is to close the
// connection. A client of one file for Python, Node and the shell is in examples/languages.
//
// # Paths
//
//	GET  /v1/locks/{key}               hold a dsync.Mutex
//	       ?mode=shared, exclusive     or a dsync.RWMutex
//	       ?of=5&n=2                   or 2 units of a dsync.Semaphore of size 5; n is 1 by default
//	GET  /v1/once/{key}                run a dsync.Once
//	GET  /v1/periodic/{key}?tick=…     run a dsync.Periodic, for a tick in RFC 3339
//	GET  /v1/elections/{key}           campaign, and campaign again after each term
//	       ?value=…                    a value of up to 256 bytes, published with each term
//	       &preference=2               of those who wait, the most preferred is elected; 0 by default
//	GET  /v1/elections/{key}/leader    who leads
//	GET  /v1/elections/{key}/leaders   who leads, again after each change
//	POST /v1/holds/{id}/done           end a hold, with a run's result as the body; 204 when no fail-over can undo it
//	POST /v1/holds/{id}/progress?limit=1m
//	GET  /v1/status/{key}              the fields of leasehold status --json
//	GET  /v1/health                    200, or 503 if dsync.Session.Healthy returns an error
//	GET  /v1/openapi.json              this, as an OpenAPI description
//
// Keys and names are percent-encoded, "/" as %2F. The paths that hold something take two more parameters, except that
// elections have no wait:
//
//	wait=30s    how long to wait; 0s: not at all. Without it, the request waits until the client closes it.
//	limit=1m    the hold is lost unless the client calls progress within each minute: see dsync.Hold.Progress
//
// An answer other than 200 and 204 is {"error":"…"}, with what was wrong and what would be right. It is 409 if the key is
// held by others, with the holder's name, and then nothing is left behind in the queue; 400 for a request that can't be
// right, or a key in use as another kind; 401 without the token; 403 or 421 for a browser; 404 for a hold that is over;
// 410 if the hold was lost before done or progress; 502 if the store refuses; 503 if too many responses are open or the
// session is closed; and 504 if the store does not answer.
//
// # Lines
//
// The response to a request that holds something is a stream of lines, each a JSON object:
//
//	{"held":…}      the key is held. id names the hold; tick, of a Periodic, is there again
//	{"elected":…}   this client leads; term is the number of the term
//	{"left_ms":…}   a sign of life: every sixth of the TTL, at most 5 s apart. It is 0 while a candidate waits. unix_ms is
//	                the time of day at which the line was written, in ms since 1970
//	{"lost":…}      the hold is lost, for this reason. The client must stop within grace_ms
//	{"done":…}      the run, or a later one, has succeeded before; nothing is held. value is its result, or value_base64
//	{"leader":…}    of leaders: who leads, or null
//	{"error":…}     the response can't go on
//
// The rules for a client are short:
//
//   - It holds the lock from held (or elected) until the first of: lost, the end of the response, a failure to read it,
//     and left_ms after it read the last line that had left_ms. A read time-out of left_ms is all that takes.
//   - On the agent's machine it subtracts the line's age, which is the time of day less unix_ms, if that is above 0, as
//     when both were frozen. On another machine, whose clock may differ, it ignores unix_ms. (Our clients see by the
//     connection's addresses where the agent is. Through a tunnel, such as that of ssh -L, both clocks must be right.)
//   - Then it stops its work, within grace_ms. Nobody else is granted the key before that, unless the client closes the
//     connection or calls done first: both say that it has stopped.
//   - A run has succeeded when done was answered with 204. A response that the client closes is a failed run.
//
// After lost, the response ends, and the key stays held for the rest of the grace, or until done. An election goes on:
// its client is a candidate again after that time, at the end of the queue. After done, the response of a lock or run ends
// without another line, and an election goes on.
//
// # What the end of a response means
//
// The response is sent by one process, the agent, whose session holds the keys. What package dsync promises to the holder
// it promises to the agent, which sends lost when Lost closes. If the agent dies, its clients' responses end, and their
// keys stay held until the TTL of its session is over, as after any crash. (So the session can have no HostDir.) While a
// client is frozen its key stays held, unless it has set a limit. If that takes longer than left_ms, the client gives up
// its hold when it resumes. If the agent is frozen, no sign of life comes; that is what left_ms is for. If both are, the
// client reads an old line when it resumes, and sees its age. But on another machine, or in a virtual machine whose clock
// was stopped, too, and not yet set again, it may rely on its hold for up to left_ms too long, until it reads lost. So may
// a client whose network fails at the moment of a Break, an expired limit or the agent's end: the next holds the key after
// the grace. As always, a write that was already under way is stopped only by a check of the token where the data is.
//
// Nothing may stand between client and agent that buffers the response, or that closes one side without the other. The
// place for an agent is the client's machine or pod. If a machine or a network between them fails, the agent notices only
// when TCP gives up: that is after its keep-alive if the client waits, but if it holds, TCP sends the last signs of life
// again, on Linux for about 15 minutes (tcp_retries2), and the lock stays held. Both must take longer than 30 s, the greatest
// left_ms, as they do by default. A client that does not read loses its hold as soon as a write has blocked for the time between two
// signs of life.
//
// # Access
//
// Anyone who can send requests can take all locks, and sees the names of all keys and hosts. Without [Options].Token the
// handler answers only requests that came through a Unix socket, or to a loopback address under a name of this machine, so
// that foreign web pages can't reach it through a name of their own, and none that a proxy has forwarded. With a token,
// each request must have it: "Authorization: Bearer TOKEN". Requests from browsers are refused either way: those with
// Origin or Sec-Fetch-Site, and those whose User-Agent begins with Mozilla/, since old browsers send only that. (So does
// PowerShell, unless it is told a -UserAgent.)
package agent
