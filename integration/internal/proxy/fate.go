package proxy

// A Fate tells what the proxy does with a command.
type Fate int

const (
	// Pass forwards the command and its reply.
	Pass Fate = iota
	// LoseReply forwards the command and swallows the reply. The connection stays open, so the caller
	// waits until its deadline.
	LoseReply
	// CutReply forwards the command and waits for the server's reply, so the command has certainly
	// been carried out. Then it closes the connection instead of forwarding the reply.
	CutReply
	// LoseRequest swallows the command; the server never sees it.
	LoseRequest
	// LateReply forwards the command and holds the reply until [Link.Heal].
	LateReply
	// ShedRequest answers as an overloaded server from 8.2 on does: the client may repeat the command,
	// and a driver may do so by itself. The server never sees the command.
	ShedRequest
	// ShedReply forwards the command, but replaces the server's reply with the answer that ShedRequest
	// gives, as a router may do.
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
