package proxy

// A Fate is what the proxy does with a command.
type Fate int

const (
	// Pass forwards the command and its reply.
	Pass Fate = iota
	// LoseReply forwards the command and discards the reply. The connection stays open, so the caller
	// waits until its deadline.
	LoseReply
	// CutReply forwards the command and waits for the server's reply, so the command has certainly
	// been carried out. Then it closes the connection instead of forwarding the reply.
	CutReply
	// LoseRequest discards the command; the server never sees it.
	LoseRequest
	// LateReply forwards the command and holds the reply until [Link.Heal].
	LateReply
	// ShedRequest gives the answer of an overloaded server (8.2 or later). The server never sees the command. The
	// answer allows the client to repeat the command, and some drivers do so by themselves.
	ShedRequest
	// ShedReply forwards the command, but replaces the server's reply with ShedRequest's answer, as a
	// router may do.
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
