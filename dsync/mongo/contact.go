package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// contactLimit bounds all tries of contact together if ctx has no deadline. Even a slow election is faster.
	contactLimit = 30 * time.Second

	// firstPause and maxPause are the first and the longest pause between tries, before jitter.
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second

	// warnAgain is the interval between warnings in the log while tries fail. A program must not wait silently for
	// hours, but a warning for each try would be noise.
	warnAgain = time.Minute
)

// contact repeats the probe during temporary states, such as the step-down of a primary or blocked writes. A program
// that starts in such a state waits, instead of crashing again and again. contact returns when the probe succeeds, when
// ctx ends, or on an error that is not temporary. Each try uses new records, because an interrupted try may have
// changed its records.
func (s *store) contact(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(noValues{ctx}, contactLimit)
		defer cancel()
	}
	var warned time.Time
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := s.probe(ctx)
		switch {
		case err == nil:
			return s.checkWatch()
		case ctx.Err() == nil && !passing(err):
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
			level := slog.LevelInfo
			if warned.IsZero() || time.Since(warned) >= warnAgain {
				level, warned = slog.LevelWarn, time.Now()
			}
			s.log.Log(ctx, level, "leasehold: the server could not be probed; trying again", slog.Any("error", err))
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(err, ctx.Err()) {
				return err
			}
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// checkWatch returns an error if the client does not report to the store's PrimaryWatch. Call it only once the driver
// has found the server: by then the driver has called the client's monitor.
func (s *store) checkWatch() error {
	if s.primary != nil && !s.primary.attached() {
		return errors.New("mongo: PrimaryWatch is not the client's server monitor; make the client with SetServerMonitor(watch.ServerMonitor(nil))")
	}
	return nil
}

// passingCodes are the error codes of temporary states, which end by themselves or when an operator acts. The
// numbers and names come from the server's src/mongo/base/error_codes.yml.
var passingCodes = []int{
	// A fail-over, a shutdown, or a replica set that has just been initiated.
	10107, // NotWritablePrimary
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
	11602, // InterruptedDueToReplStateChange
	11600, // InterruptedAtShutdown
	189,   // PrimarySteppedDown
	91,    // ShutdownInProgress
	10058, // LegacyNotPrimary
	94,    // NotYetInitialized
	134,   // ReadConcernMajorityNotAvailableYet
	211,   // KeyNotFound: a new cluster has no keys for its logical clock yet
	64,    // WriteConcernTimeout: not confirmed in time

	// Interrupted by killOp, a time limit, or a change in the server.
	11601,    // Interrupted
	24,       // LockTimeout
	50,       // MaxTimeMSExpired
	237,      // CursorKilled
	262,      // ExceededTimeLimit
	355,      // InterruptedDueToStorageChange
	453,      // InterruptedDueToReshardingCriticalSection
	46841,    // ClientMarkedKilled
	10045600, // InterruptedDueToFCVChange

	// Writes are blocked, or the server or its disk is full.
	371,       // UserWritesBlocked: setUserWriteBlockMode, as Atlas does when a disk fills up
	codeAtlas, // "you are over your space quota"; for the other meanings see notAllowed
	14031,     // OutOfDiskSpace
	264,       // TooManyFilesOpen
	365,       // TemporarilyUnavailable: the cache is full
	402,       // ResourceExhausted

	// The server sheds load. 462 and 463 also come with labels.
	433, // AdmissionQueueOverflow
	449, // RateLimitExceeded
	450, // PooledConnectionAcquisitionRejected
	462, // IngressRequestRateLimitExceeded
	463,

	// Conflicts with other operations.
	112, // WriteConflict
	46,  // LockBusy
	117, // ConflictingOperationInProgress
	215, // DatabaseDropPending

	// From a mongos: a shard or the config servers are unreachable, or data is being moved.
	6, 7, 89, 9001, // HostUnreachable, HostNotFound, NetworkTimeout, SocketException
	202,      // NetworkInterfaceExceededTimeLimit
	407,      // PooledConnectionAcquisitionExceededTimeLimit
	133,      // FailedToSatisfyReadPreference: no primary is known
	149,      // NoConfigPrimary
	56846,    // ConfigServerUnreachable
	91331,    // RetriableRemoteCommandFailure
	150, 249, // StaleEpoch, StaleDbVersion
	13388,    // StaleConfig
	272,      // MigrationConflict
	319,      // MovePrimaryInProgress
	338, 342, // ReshardCollectionInProgress, ReshardingCriticalSectionTimeout
}

// passingLabels are labels that mark an error as temporary, whatever its code. They mean that the driver cleared its
// pool because the server became silent or unreachable, that the server sheds load, or that it allows a retry.
var passingLabels = []string{"TransientTransactionError", "SystemOverloadedError", "RetryableError", "RetryableWriteError"}

// passing reports whether an error is temporary, so that the same command may succeed later: a network error, a
// time-out, or an error with one of the codes or labels above.
func passing(err error) bool {
	if errors.Is(err, driver.ErrRefused) || refused(err) {
		return false
	}
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) {
		return true
	}
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	return slices.ContainsFunc(passingCodes, server.HasErrorCode) || slices.ContainsFunc(passingLabels, server.HasErrorLabel)
}
