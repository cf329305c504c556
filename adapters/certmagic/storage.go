package certmagic

import "github.com/caddyserver/certmagic"

// storage is another Storage with the locks of a Locker in place of its own.
type storage struct {
	*Locker
	other // one deeper than the Locker, whose methods go before its own
}

type other struct{ certmagic.Storage }

// Storage returns s with the locks of l in place of its own. It is a
// certmagic.TryLocker and a certmagic.LockLeaseRenewer, too.
func (l *Locker) Storage(s certmagic.Storage) certmagic.Storage { return storage{l, other{s}} }
