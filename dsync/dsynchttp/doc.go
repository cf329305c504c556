// Package dsynchttp serves a page about the locks of a process, in the manner of
// net/http/pprof: its session, what it holds and waits for, the keys and members
// in the store, and who held each key last.
//
//	page := dsynchttp.New(locks, nil)
//	defer page.Close()
//	http.Handle("/debug/leasehold/", http.StripPrefix("/debug/leasehold", page))
//
// # Who may see it
//
// Whoever can reach the handler sees the names of all keys, and of the hosts that
// use them. Serve it where pprof may be served, or behind a handler that asks who
// it is. It only reads, unless [Options].Authorize allows more.
//
// # Paths
//
//	./                     the session, and keys: ?prefix=, ?after=, ?n= (1 to 1,000, default 100)
//	./key?key=…            one key: its holders, its line, and who held it last
//	./events?…             either of these as a stream of server-sent events, for the page's script
//	./break                POST key=…: Session.Break of dsync, if Options.Authorize allows it
//
// All but the last take ?window=1m, 10m (the default) or 1h, the time that timelines show. The page
// needs no script; with script it is kept up to date while it is visible.
//
// What the store does not answer within 5 s is left out, and the page says so. A key
// that the store has no record of is 404, and the 17th stream 503.
//
// # JSON
//
// The first two paths come as JSON with ?format=json or "Accept: application/json", an
// object with
//
//	now        the time of this host
//	session    what the session knows of itself: id, leftMs of leaseMs, closed, and so on
//	unhealthy  why it is not healthy, if it is not: see dsync.Session.Healthy
//	mine       what this process holds and waits for, with a state: holds, lost, lingers or waits
//	keys       of each key its kind, holders, line, and history, who held it last
//	members    the sessions that are alive; not with ./key
//	next       the address of the keys after these, if there are more
//	error      why the store could not be read, if it could not
//
// Fields whose names end in Ms are milliseconds; a key's value is base64.
//
// # What it costs
//
// A process without anyone who looks sends no command for the page: the store is
// read for each request, and every [Options].Refresh for each stream of events, of
// which there may be 16. What this process itself holds is recorded all the time,
// from the session's hooks, which costs each hold a few allocations, and what others
// hold while somebody looks: the last 16 holds of each key, of up to 1,000 keys. So
// the timeline of another process is true for the time in which it was looked at; a
// hold that ended while nobody looked is drawn faint from when it was last seen.
package dsynchttp
