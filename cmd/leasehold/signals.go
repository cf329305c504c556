//go:build linux || darwin || freebsd

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals are those that leasehold gets and forwards.
type signals struct {
	c    chan os.Signal
	last caught // the last that ends things, if any
}

// A caught is a signal that was caught.
type caught syscall.Signal

// ends reports whether the signal is one by which programs are asked to end: it is
// meant for all of a group.
func (c caught) ends() bool {
	s := syscall.Signal(c)
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT
}

// catch catches signals until stop. What was ignored before, as by nohup(1), stays so.
func catch() *signals {
	s := &signals{c: make(chan os.Signal, 16)}
	for _, one := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		if !signal.Ignored(one) {
			signal.Notify(s.c, one)
		}
	}
	return s
}

func (s *signals) stop() { signal.Stop(s.c) }

// note takes a signal from the channel and remembers it if it ends things.
func (s *signals) note(sig os.Signal) caught {
	c := caught(sig.(syscall.Signal))
	if c.ends() {
		s.last = c
	}
	return c
}

// cancels calls f, and cancels its context on a signal that ends programs, or
// SIGHUP. Then the error is the failure with the status for that, also if f succeeded.
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
			if c := s.note(sig); c.ends() || sig == syscall.SIGHUP {
				cancel()
				<-done
				return &failure{status: exitSignal + int(c)}
			}
		}
	}
}
