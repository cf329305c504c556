// Package bench measures package dsync. The figures in the README and in commit messages come from
// here, each taken in one run together with what it is compared to:
//
//	go run ./bench/report
//	go test ./bench -bench . -count 10
//
// The report makes the README's table, on MongoDB, etcd, PostgreSQL and Redis, as far as they are
// installed. The benchmarks are for benchstat; they run on the store in memory and, if MONGODB_URI
// is set, on that server. Compare figures only within one run. Both use the measured operations in
// internal/measure.
package bench
