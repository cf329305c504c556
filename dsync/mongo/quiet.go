package mongo

import "sync"

// maxQuiet is how many keys are known to be quiet; of more, any are forgotten.
const maxQuiet = 4096

// quietKeys are keys that this process was the last to hold, or holds, and that
// nobody else stood in line for when it was granted them. It is likely to find them
// free, and asks for them with the short command. Where that is not to be expected it
// does not: it would cost a second command.
type quietKeys struct {
	mu   sync.Mutex
	keys map[string]quietKey
}

type quietKey struct {
	claim string // that holds it, "" if none does
	token int64  // its last
}

// note says that claim holds the key, "" that nobody does, and what its last token is.
func (q *quietKeys) note(key, claim string, token int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = make(map[string]quietKey)
	}
	q.keys[key] = quietKey{claim, token}
	for other := range q.keys {
		if len(q.keys) <= maxQuiet {
			break
		}
		delete(q.keys, other)
	}
}

// take reports whether the key is quiet with claim as the one that holds it, and
// its last token, and forgets it until the next note: what becomes of it is unknown
// until the answer.
func (q *quietKeys) take(key, claim string) (token int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k, ok := q.keys[key]
	if !ok || k.claim != claim {
		return 0, false
	}
	delete(q.keys, key)
	return k.token, true
}
