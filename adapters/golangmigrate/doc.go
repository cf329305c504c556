// Package golangmigrate lets processes that migrate a database with
// github.com/golang-migrate/migrate/v4 do so one at a time: it gives a database.Driver of that
// library the lock of a dsync.Session, in place of the driver's own.
//
//	inner, err := mongodb.WithInstance(client, &mongodb.Config{DatabaseName: "app"})
//	driver, err := golangmigrate.New(inner, locks, "migrate/app", nil) // locks is a *dsync.Session
//	m, err := migrate.NewWithInstance("iofs", source, "mongodb", driver)
//	err = m.Up()
//
// golang-migrate's MongoDB driver locks by inserting a document. If its process dies, or an insert
// takes effect after the driver has given up on it, the document stays, and nobody can migrate until
// a person deletes it (golang-migrate#902). The lock of this package becomes free when the TTL of
// its session runs out.
//
// # The inner driver's lock
//
// The inner driver's Lock and Unlock are never called from here. But the MongoDB driver calls them
// itself when it is made, and would then wait for its stuck document. With WithInstance, leave
// Locking.Enabled of its Config false, which is the default; in a URL, set
// x-advisory-locking=false.
//
// Processes with this package and processes without it do not exclude each other. Change all of
// them at the same time.
//
// # Waiting
//
// migrate.Migrate calls Lock once, and gives up after its LockTimeout, 15 s by default. It does not
// end the Lock that it has given up on: if that Lock succeeded later, nobody would call Unlock. So
// Lock gives up by itself, before that: see [Options].Wait. To wait for the end of longer
// migrations, or until the lock of a dead process is free, raise both. A Migrate that has given up
// should be closed: [Driver.Close] ends a Lock that still waits.
//
// # When the lock is lost
//
// A process loses the lock if it cannot reach the store for most of the session's TTL, is frozen for
// that long, or somebody uses Break. It then does not go on migrating: Run, SetVersion and Drop
// return an error that matches dsync.ErrLost, and do not call the inner driver. Unlock returns such
// an error, too, so that a loss during the last step is reported.
//
// If the lock is lost between two migrations, the next process continues with the second one. If
// it is lost during a migration, the version stays dirty, as when a process dies in the middle.
// golang-migrate then refuses to go on until a person has looked and called Migrate.Force, because
// only a person can know how far the migration came.
//
// A Migrate whose Unlock has failed returns migrate.ErrLocked from then on. Make another one to try
// again; it may have the same driver.
//
// # Limits
//
// golang-migrate passes no context to Run. So if the lock is lost during a step, the step
// continues, even after the grace. Another process that gets the lock meanwhile finds the version
// dirty and stops. There are no fencing tokens, because no driver checks them. So nothing prevents
// the single write of a process that is frozen between this package's check and that write.
//
// The MongoDB driver saves a version by dropping a collection and inserting a document into a new one.
// If a process dies between the two, there is no version, and the next process begins with the first
// migration. So write migrations for MongoDB that do no harm when they run twice.
//
// The MongoDB driver's Drop drops the whole database. If the store of the locks is in that database,
// all its locks are lost, also those of other programs. Keep the locks in a database of their own if
// you use Drop.
package golangmigrate
