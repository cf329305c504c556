package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// Open is a function that opens the session of the process, on MongoDB with dsyncmongo.Connect.
type Open func(context.Context) (*dsync.Session, error)

// Work is a function that does the leader's work until its context ends.
type Work func(context.Context) error

// lead runs work on one process of the fleet at a time, from the start of the app until its stop.
func lead(lifecycle fx.Lifecycle, app fx.Shutdowner, open Open, work Work) {
	var locks *dsync.Session
	ctx, stop := context.WithCancel(context.Background()) // OnStart's ends when the app has started
	ended := make(chan struct{})
	lifecycle.Append(fx.Hook{
		OnStart: func(starting context.Context) (err error) {
			if locks, err = open(starting); err != nil {
				return err
			}
			election, err := leader.New(locks, "reports", nil)
			if err != nil {
				return errors.Join(err, locks.Close(starting)) // OnStop is not called
			}
			go func() {
				defer close(ended)
				if err := election.Run(ctx, work); ctx.Err() == nil { // work has returned by itself
					slog.Error("the leader's work ended", "err", err)
					_ = app.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		OnStop: func(stopping context.Context) error {
			stop() // ends work's context; when work has returned, Run resigns
			select {
			case <-ended:
			case <-stopping.Done(): // Close leaves work the rest of its grace
			}
			return locks.Close(stopping)
		},
	})
}

// newApp returns an app made as main would make it.
func newApp(store driver.Store, name string, work Work) *fx.App {
	open := func(context.Context) (*dsync.Session, error) {
		return dsync.New(store, &dsync.Options{Name: name})
	}
	return fx.New(fx.NopLogger, fx.Supply(Open(open), work), fx.Invoke(lead))
}

func TestMain(m *testing.M) {
	c := make(chan os.Signal, 1) // starts the goroutine of os/signal, which no bubble may own
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
	os.Exit(m.Run())
}

// Stop ends the leader's work. After that another app leads, and nothing is left in the store.
func TestFxStopResignsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		begun, ended := make(chan string, 2), make(chan string, 2)
		app := func(name string) *fx.App {
			app := newApp(store, name, func(ctx context.Context) error {
				begun <- name
				<-ctx.Done()
				time.Sleep(time.Second)
				ended <- name
				return ctx.Err()
			})
			if err := app.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return app
		}
		a, b := app("a"), app("b")
		if got := <-begun; got != "a" || len(begun) != 0 {
			t.Errorf("%s leads, want a, and nobody else", got)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if len(ended) != 1 {
			t.Error("Stop returned before the work had")
		}
		synctest.Wait()
		if len(begun) != 1 {
			t.Error("the other app did not lead at once")
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		nobody(t, store, "reports")
	})
}

// If the work does not stop, another process leads when the grace is over.
func TestFxWorkThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		begun := make(chan bool, 2)
		work := func(context.Context) error {
			begun <- true
			time.Sleep(time.Hour)
			return nil
		}
		a, b := newApp(store, "a", work), newApp(store, "b", work)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-begun
		stopping, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_ = a.Stop(stopping)
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		<-begun
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the other app leads after %v", took)
		}
		_ = b.Stop(t.Context())
		time.Sleep(2 * time.Hour)
	})
}

// If the work fails, the app shuts down with an exit code.
func TestFxWorkThatFailsEndsTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		app := newApp(store, "a", func(context.Context) error { return errors.New("broken") })
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-app.Wait():
			if s.ExitCode != 1 {
				t.Errorf("exit code %d, want 1", s.ExitCode)
			}
		case <-time.After(time.Hour):
			t.Error("the app was not shut down")
		}
		if err := app.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		nobody(t, store, "reports")
	})
}

func Example_fx() {
	leading := make(chan bool, 1)
	app := newApp(dsynctest.NewMemory(), "a", func(ctx context.Context) error {
		fmt.Println("leading")
		leading <- true
		<-ctx.Done()
		fmt.Println("stopped")
		return ctx.Err()
	})
	if err := app.Start(context.Background()); err != nil {
		fmt.Println(err)
	}
	<-leading // app.Run waits for a signal instead
	fmt.Println(app.Stop(context.Background()))
	// Output:
	// leading
	// stopped
	// <nil>
}
