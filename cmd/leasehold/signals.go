//go:build linux || darwin || freebsd

package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
)

// signals catches the signals that leasehold forwards.
type signals struct {
	c        chan os.Signal // the caught signals, for the command if one is running, otherwise for leasehold
	terminal *terminal      // nil if there is none

	from  chan os.Signal
	again chan struct{} // closed on the second ending signal, if no command is running

	mu      sync.Mutex
	last    caught // the last ending signal, 0 if there was none
	command bool   // a command is running and gets the signals
}

// A caught is a caught signal.
type caught syscall.Signal

// ends reports whether the signal asks programs to end. Such a signal is meant for a whole process
// group.
func (c caught) ends() bool { return keep.Ends(syscall.Signal(c)) }

// catch catches signals until stop is called. Signals that were ignored before, as under nohup(1),
// stay ignored.
func catch() *signals {
	s := &signals{c: make(chan os.Signal, 16), from: make(chan os.Signal, 16), again: make(chan struct{})}
	keep.Notify(s.from, keep.Forwarded()...)
	go s.pass()
	return s
}

// catchJobControl is like catch, but if there is a controlling terminal, it also catches the
// signals that stop and continue jobs.
func catchJobControl() *signals {
	s := catch()
	if s.terminal = openTerminal(); s.terminal != nil {
		keep.Notify(s.from, syscall.SIGTSTP, syscall.SIGCONT)
	}
	return s
}

func (s *signals) stop() {
	signal.Stop(s.from)
	close(s.from)
	if s.terminal != nil {
		s.terminal.close()
	}
}

// pass sends the caught signals to c. Like package signal, it drops them if c is full.
func (s *signals) pass() {
	ended := false
	for sig := range s.from {
		if s.note(sig) && !ended {
			ended = true
			close(s.again)
		}
		select {
		case s.c <- sig:
		default:
		}
	}
}

// note records sig if it asks programs to end. It reports whether sig is at least the second such signal and no command
// is running to handle it.
func (s *signals) note(sig os.Signal) (again bool) {
	c := caught(sig.(syscall.Signal))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ends() {
		return false
	}
	again = s.last.ends() && !s.command
	s.last = c
	return again
}

// lastEnding returns the last ending signal, or 0 if there was none.
func (s *signals) lastEnding() caught {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// forward records whether a command is running. While the command runs, it gets all signals.
func (s *signals) forward(command bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.command = command
}

// untilSecond calls f and returns its error. If the store answers, f returns soon after the first
// ending signal. On the second ending signal, unless a command is running, untilSecond does not
// wait for f: it returns a failure with that signal's exit status.
func (s *signals) untilSecond(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-s.again:
		return &failure{status: exitSignal + int(s.lastEnding())}
	}
}

// cancels calls f and cancels its context on SIGHUP or an ending signal. After such a signal it
// returns a failure with that signal's exit status, even if f succeeded.
func (s *signals) cancels(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case sig := <-s.c:
			switch c := caught(sig.(syscall.Signal)); {
			case sig == syscall.SIGTSTP:
				s.terminal.stopJob()
			case c.ends() || sig == syscall.SIGHUP:
				cancel()
				<-done
				return &failure{status: exitSignal + int(c)}
			}
		}
	}
}
