package dsync

import "context"

// lock calls f until it succeeds: it is Lock, for a LockContext. On a closed
// session it never returns.
func (s *Session) lock(key string, f func(context.Context) error) {
	retry := backoff{cap: s.opt.TTL / 2}
	for {
		err := f(context.Background())
		if err == nil {
			return
		}
		s.warn("dsync: Lock goes on waiting", "key", key, "err", err)
		if s.sleep(context.Background(), retry.next()) != nil {
			select {}
		}
	}
}
