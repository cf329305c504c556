package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal calls f with a context that ends on SIGINT or SIGTERM. If f then fails because it
// was interrupted, untilSignal returns a failure with the exit status for that signal. A second
// signal is not caught, so it ends the process.
func untilSignal(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(c)
	go func() {
		select {
		case sig := <-c:
			signal.Stop(c)
			cancel(&failure{status: exitSignal + int(sig.(syscall.Signal))})
		case <-ctx.Done():
		}
	}()
	err := failed(f(ctx))
	var got, cause *failure
	if errors.As(err, &got) && got.status == exitInterrupted && errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}
