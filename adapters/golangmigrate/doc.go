// Package golangmigrate lets processes that migrate a database with github.com/golang-migrate/migrate/v4 do so one at a
// time. It wraps one of that library's database drivers and replaces the driver's own lock with a lock of a
// dsync.Session.
//
//	inner, err := mongodb.WithInstance(client, &mongodb.Config{DatabaseName: "app"})
//	driver, err := golangmigrate.New(inner, locks, "migrate/app", nil) // locks is a *dsync.Session
//	m, err := migrate.NewWithInstance("iofs", source, "mongodb", driver)
//	err = m.Up()
//
// golang-migrate's MongoDB driver locks by inserting a document. If the process dies, or the server executes the insert
// after the driver has given up on it, the document stays. Then nobody can migrate until a person deletes the document
// (golang-migrate#902). This package's lock becomes free when the TTL of its session runs out.
//
// # The inner driver's lock
//
// This package never calls the inner driver's Lock and Unlock. But the MongoDB driver takes its own lock when it is
// made, and would then wait for a document that a dead process has left behind. With WithInstance, leave
// Config.Locking.Enabled false, which is the default; in a URL, set x-advisory-locking=false.
//
// This package's lock does not exclude processes that migrate without this package, so switch all processes at the same
// time.
//
// # Waiting
//
// migrate.Migrate calls Lock once, and gives up waiting for it after LockTimeout, 15 s by default. But it cannot cancel
// that Lock, and if the Lock succeeded later, nobody would call Unlock. So Lock itself gives up earlier: see
// [Options].Wait. To wait longer, for a long migration or until a dead process's lock becomes free, raise both
// LockTimeout and Wait. Close a Migrate that has given up: [Driver.Close] ends a Lock that is still waiting.
//
// # When the lock is lost
//
// A process loses the lock if it cannot reach the store for most of the session's TTL, if it is frozen for that long,
// or if somebody breaks the lock. It then stops migrating: Run, SetVersion and Drop return an error that matches
// dsync.ErrLost, and do not call the inner driver. Unlock returns such an error, too, so that a loss during the last
// step is reported.
//
// If the lock is lost between two migrations, the next process continues with the second migration. If it is lost
// during a migration, the version stays dirty, as if the process had died. golang-migrate then refuses to continue
// until a person calls Migrate.Force: only a person can find out how far the migration got.
//
// A Migrate whose Unlock has failed returns migrate.ErrLocked from then on. To try again, make
// another Migrate; it may use the same driver.
//
// # Limits
//
// golang-migrate passes no context to Run. So if the lock is lost during a step, the step continues, even after the
// grace. If another process gets the lock meanwhile, it finds the version dirty and stops. Drivers don't check fencing
// tokens. So if a process is frozen between this package's check and the write that follows, nothing prevents that one
// write.
//
// The MongoDB driver saves a version by dropping a collection and inserting a document into a new one.
// If a process dies between the two, there is no version, and the next process begins with the first
// migration. So write migrations for MongoDB that do no harm when they run twice.
//
// The MongoDB driver's Drop drops the whole database. If the locks are stored in that database, all of them are lost,
// other programs' locks included. If you use Drop, keep the locks in another database.
package golangmigrate
