package proxy

// A Fate is what happens to one command.
type Fate int

const (
	// Pass forwards the command and its reply.
	Pass Fate = iota
	// LoseReply forwards the command and swallows the reply; the connection
	// stays open, so that the caller waits until its deadline.
	LoseReply
	// CutReply forwards the command and waits for the server's reply, so the command has certainly
	// been carried out. Then it closes the connection instead of forwarding the reply.
	CutReply
	// LoseRequest swallows the command; the server never sees it.
	LoseRequest
	// LateReply forwards the command and holds the reply until [Link.Heal].
	LateReply
	// ShedRequest gives the answer of an overloaded server, which allows the client to repeat the
	// command. Servers from 8.2 on give such answers. The server never sees the command. A driver
	// may repeat it by itself.
	ShedRequest
	// ShedReply forwards the command, but replaces the server's reply with the answer of
	// ShedRequest, as a router may.
	ShedReply
	// LateRequest holds the command, and all later messages on its connection, until [Link.Heal],
	// and then forwards them.
	LateRequest
)

// A verdict is the fate that a link's rule chose for a command.
type verdict struct {
	Fate
	healed <-chan struct{} // closed by the link's next Heal
}
