package proxy

// A Fate is what happens to one command.
type Fate int

const (
	// Pass forwards the command and its reply.
	Pass Fate = iota
	// LoseReply forwards the command and swallows the reply; the connection
	// stays open, so that the caller waits until its deadline.
	LoseReply
	// CutReply forwards the command, waits for the server's reply, so that the
	// command surely was carried out, and closes the connection in place of it.
	CutReply
	// LoseRequest swallows the command; the server never sees it.
	LoseRequest
	// LateReply forwards the command and holds the reply until [Link.Heal].
	LateReply
	// ShedRequest answers in place of the server that it is overloaded and the command may be repeated, as
	// servers from 8.2 on do. The server never sees the command. A driver may repeat it by itself.
	ShedRequest
	// ShedReply forwards the command, and answers the same in place of the server when it has been carried
	// out, as a router may.
	ShedReply
	// LateRequest holds the command and what comes after it on its connection
	// until [Link.Heal], then forwards it.
	LateRequest
)

// A verdict is the fate that a link's rule chose for a command.
type verdict struct {
	Fate
	healed <-chan struct{} // closed by the link's next Heal
}
