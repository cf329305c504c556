//go:build linux || darwin || freebsd

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals catches the signals that leasehold forwards.
type signals struct {
	c        chan os.Signal
	last     caught    // the last one that ends programs, 0 if there was none
	terminal *terminal // nil if there is none
}

// A caught is a signal that was caught.
type caught syscall.Signal

// ends reports whether the signal asks programs to end. Such a signal is meant for a
// whole process group.
func (c caught) ends() bool {
	s := syscall.Signal(c)
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT
}

// catch catches signals until stop. Signals that were ignored before, as by nohup(1),
// stay ignored.
func catch() *signals {
	s := &signals{c: make(chan os.Signal, 16)}
	s.add(syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	return s
}

// catchJobControl does as catch does, and also catches what stops and continues jobs if
// there is a controlling terminal.
func catchJobControl() *signals {
	s := catch()
	if s.terminal = openTerminal(); s.terminal != nil {
		s.add(syscall.SIGTSTP, syscall.SIGCONT)
	}
	return s
}

func (s *signals) add(all ...os.Signal) {
	for _, one := range all {
		if !signal.Ignored(one) {
			signal.Notify(s.c, one)
		}
	}
}

func (s *signals) stop() {
	signal.Stop(s.c)
	if s.terminal != nil {
		s.terminal.close()
	}
}

// note returns sig, a signal from the channel, and remembers it if it ends programs.
func (s *signals) note(sig os.Signal) caught {
	c := caught(sig.(syscall.Signal))
	if c.ends() {
		s.last = c
	}
	return c
}

// cancels calls f and cancels its context on SIGHUP or a signal that ends programs. Then
// the error is the failure with that signal's exit status, even if f succeeded.
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
			switch c := s.note(sig); {
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
