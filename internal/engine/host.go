package engine

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// lockFile makes and locks the file of a new registration. If that fails, the session goes on without a file: a full
// disk must not prevent locking.
func (s *Session) lockFile(m *driver.Member) {
	if s.hostDir == nil {
		return
	}
	mark, unlock, err := s.hostDir.Lock(m.ID)
	if err != nil {
		s.Warn("dsync: the session has no file in HostDir: if this process crashes, its locks become free only after a TTL", "session", m.ID, "err", err)
		return
	}
	m.HostFile = mark
	s.unlocks.Store(m.ID, unlock)
}

// unlockFile removes and unlocks a session's file. It is called when the session's id is no longer used. Otherwise the
// file would stay locked until the process ends, even after Close.
func (s *Session) unlockFile(session string) {
	if unlock, locked := s.unlocks.LoadAndDelete(session); locked {
		unlock.(func())()
	}
}

// lookForDeaths tells the Core which other sessions' processes have died. Package hostdir explains why an unlocked file
// proves a death. If there are sessions to watch, it also starts watching HostDir until Close.
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
		s.Warn("dsync: the session is not notified of processes that die on this machine; it checks only when it reads the sessions ahead of it", "err", err)
	}
}
