package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// contactLimit is how long the first contact is tried if ctx has no deadline, and how long
	// one try may take: longer than a slow election.
	contactLimit = 30 * time.Second

	// firstPause and maxPause are the pauses between tries, before jitter.
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// contact repeats the probe through a fail-over, so that a program that starts while a primary
// steps down waits for the next one. It returns when the probe succeeds, when ctx ends, or on
// an error that is not temporary. Each try uses new records, because it is unknown what an
// interrupted try has done.
func (s *Store) contact(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(noValues{ctx}, contactLimit)
		defer cancel()
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := s.probeWithin(ctx, contactLimit)
		switch {
		case err == nil:
			return s.checkWatch()
		case ctx.Err() == nil && !passing(err):
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
			s.log.Info("leasehold: the server could not be probed; trying again", slog.Any("error", err))
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(err, ctx.Err()) {
				return err
			}
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// checkWatch returns an error if the watch cannot see the primary. By then the driver has found
// the server, and has called the client's monitor.
func (s *Store) checkWatch() error {
	if s.primary != nil && !s.primary.attached() {
		return errors.New("mongo: PrimaryWatch is not a monitor of the client; make the client with SetServerMonitor(watch.ServerMonitor(nil))")
	}
	return nil
}

func (s *Store) probeWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(noValues{ctx}, limit)
	defer cancel()
	return s.probe(ctx)
}

// passingCodes are the error codes of a server that steps down, shuts down or was just elected,
// and of routers in front of it.
var passingCodes = []int{
	10107,          // NotWritablePrimary
	13435,          // NotPrimaryNoSecondaryOk
	13436,          // NotPrimaryOrSecondary
	11602,          // InterruptedDueToReplStateChange
	11600,          // InterruptedAtShutdown
	189,            // PrimarySteppedDown
	91,             // ShutdownInProgress
	10058,          // NotMaster, of old servers
	112,            // WriteConflict
	133,            // FailedToSatisfyReadPreference: a mongos that knows no primary
	134,            // ReadConcernMajorityNotAvailableYet
	64,             // WriteConcernFailed: not confirmed in time
	50,             // MaxTimeMSExpired
	262,            // ExceededTimeLimit
	6, 7, 89, 9001, // HostUnreachable, HostNotFound, NetworkTimeout, SocketException: of a mongos
}

// passing reports whether an error is temporary: a fail-over, the network, no server in time, or an
// overloaded one.
func passing(err error) bool {
	if errors.Is(err, driver.ErrRefused) {
		return false
	}
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) {
		return true
	}
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	for _, code := range passingCodes {
		if server.HasErrorCode(code) {
			return true
		}
	}
	// The driver cleared the pool, because the server became silent or went away; or the server sheds load.
	return server.HasErrorLabel("TransientTransactionError") || server.HasErrorLabel("SystemOverloadedError")
}
