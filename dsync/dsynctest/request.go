package dsynctest

// A Request is what a [Faulty] asks its test about: one call of a method of the
// store, or one event of a Watch.
type Request struct {
	Seq    int // counts the requests of this Faulty from 1, in the order of their arrival
	Method Method

	// Session is the id of the session that the request names: of the claim, of
	// the watch, the one to bury. Claim and Key are those of the claim, of what is
	// revoked, or of the event; Key is also the key to load, to resize, or whose observers or line to read. They are
	// empty where the method has none.
	Session, Claim, Key string

	Wait bool // of Acquire
}
