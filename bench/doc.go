// Package bench measures package dsync. The figures in the README and in commit messages come from these commands:
//
//	go run ./bench/report
//	go test ./bench -bench . -count 10
//
// The report makes the README's table. It measures whichever of MongoDB, etcd, PostgreSQL and Redis
// are installed. The benchmarks are for benchstat; they run on the store in memory and, if
// MONGODB_URI is set, on the server that it names. Compare figures only within one run. The report
// and the benchmarks share the measured operations in internal/measure.
package bench
