package engine

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// lockFile makes and locks the file of a new registration. If that fails the session goes on without: a full disk
// must not keep anybody from locking.
func (s *Session) lockFile(m *driver.Member) {
	if s.hostDir == nil {
		return
	}
	mark, unlock, err := s.hostDir.Lock(m.ID)
	if err != nil {
		s.Warn("dsync: the session has no file in HostDir: if this process crashes, its locks are free after a TTL", "session", m.ID, "err", err)
		return
	}
	m.HostFile = mark
	s.unlocks.Store(m.ID, unlock)
}

// unlockFile ends the file of a session in whose name nothing is done any more. A file that is not ended stays
// locked until the process ends, also after Close.
func (s *Session) unlockFile(session string) {
	if unlock, locked := s.unlocks.LoadAndDelete(session); locked {
		unlock.(func())()
	}
}

// lookForDeaths tells the Core which of the other sessions' processes have died. Package hostdir says why a free lock is
// a death. If there are sessions to look at, it also has the files looked at when one may be free, until Close.
func (s *Session) lookForDeaths() {
	s.mu.Lock()
	files := s.core.HostFiles()
	s.mu.Unlock()
	for id, mark := range files {
		if s.hostDir.Dead(id, mark) {
			s.mu.Lock()
			s.step(core.Died{Session: id})
			s.mu.Unlock()
		}
	}
	if len(files) > 0 {
		s.hearing.Do(func() { s.spawn(s.hearOfDeaths) })
	}
}

func (s *Session) hearOfDeaths() {
	if err := s.hostDir.Ended(s.base, s.lookForDeaths); s.base.Err() == nil {
		s.Warn("dsync: the session does not hear of deaths on this machine; it looks only when it reads who is ahead of it", "err", err)
	}
}
