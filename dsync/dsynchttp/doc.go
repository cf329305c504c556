// Package dsynchttp serves a page about the locks of a process, in the manner of
// net/http/pprof: its session, what it holds and waits for, the keys and members
// in the store, and the last holders of each key.
//
//	page := dsynchttp.New(locks, nil)
//	defer page.Close()
//	http.Handle("/debug/leasehold/", http.StripPrefix("/debug/leasehold", page))
//
// To serve the page without writing a program, use the command leasehold serve.
//
// # Access
//
// Anyone who can reach the handler sees the names of all keys, and of the hosts that
// use them. Serve it where you would serve pprof, or behind a handler that
// authenticates its users. The page is read-only unless [Options].Authorize is set.
//
// # Paths
//
//	./                     the session, what it holds, keys, waiting processes, and members
//	./key?key=…            one key: its holders, its queue, and its last holders
//	./events?…             either of these as a stream of server-sent events, for the page's script
//	./break                POST key=…: Break of dsync/admin, if Options.Authorize allows it
//
// All but the last take the parameter window, which is the time span of the timelines: 1m, 10m (the default) or 1h. The
// page works without JavaScript; with JavaScript, it updates itself while it is visible. The first path also takes
//
//	prefix, contains    show only keys that begin with the one and contain the other
//	sort                held (the default: what is held or waited for first), key, age (held for
//	                    the longest time first) or waiters
//	n                   the most entries in each list, 1 to 1,000; 100 by default
//	after               the key after which the list of keys begins
//	mine, members       the positions at which the lists mine and members begin
//
// The store finds keys by their prefix. In the default order, a request reads keys in byte order until it has found n
// keys in use, but at most 1,000 keys. With contains, age or waiters it reads up to 10,000 keys. The page shows the
// first n keys found, and says if there are more keys to read. It also shows which processes wait for the keys that
// were read, and which processes they wait for. Processes that wait for each other, perhaps through others, are marked
// as a cycle. The cycle is a deadlock if, in each process, the goroutine that waits also holds the key that another
// process waits for. If different goroutines hold and wait, the cycle can resolve itself.
//
// If a key or a name has characters that can't be seen, or that set the direction of the text around them, it is shown
// in quotes, with these characters as Go escapes. JSON contains keys and names unchanged.
//
// If the store does not answer a request within 5 s, the page leaves out what is missing and says so. The HTTP status
// is 404 for a key without a record in the store, and 503 if 16 streams are already open.
//
// # JSON
//
// The first two paths return JSON for ?format=json or "Accept: application/json": an
// object with
//
//	now        the time of this host
//	store      Options.Store
//	session    what the session knows about itself: id, left_ms of lease_ms, closed, and so on
//	unhealthy  why the session is not healthy, if so: see dsync.Session.Healthy
//	mine       what this process holds and waits for, with a state: holds, lost, lingers or waits
//	keys       the fields of "leasehold status --json" with the first n holders and waiters,
//	           holder_count, and history: the last holders
//	read       how many keys were read to find the keys; matched: how many of these matched the query
//	next       the address of the next page of keys, if there is one
//	waits      pairs of a waiter and the holder that it waits for, with the keys, and whether they are in a cycle
//	members    the sessions that are alive; not with ./key
//	totals     the full lengths of the lists mine and members, which are shown in part
//	error      why the store could not be read, if so
//
// Fields whose names end in _ms are milliseconds.
//
// # Cost
//
// The size of a page and its events depends on n, not on the number of keys in the store or of keys that this process
// holds. An event contains only what has changed; ages and timelines advance by themselves. With 100,000 held keys a
// page is about 130 kB. A stream sends about 140 bytes a second while nothing changes, and about 200 bytes for each
// lock that is taken and released.
//
// The handler reads the store only while somebody has the page open: once for each request, and
// every [Options].Refresh for each stream of events. At most 16 streams may be open at a time.
// After each reading the stream pauses for at least nine times as long as the reading took.
//
// The holds of this process are recorded all the time, through the session's hooks, at the cost of a few allocations
// per hold. The holds of other processes are recorded only while the page is open. The record keeps the last 16 holds
// of each key, for up to 1,000 keys. So the timeline of another process is complete only for the time during which the
// page was open. If a hold ended while the page was closed, the timeline is faint from the moment when the hold was
// last seen.
package dsynchttp
