// Package bench measures package dsync. The figures in the README come from
//
//	go run ./bench/report
//
// which measures whichever of MongoDB, etcd, PostgreSQL and Redis are installed. The benchmarks run
// on the store in memory, for benchstat:
//
//	go test ./bench -bench . -count 10
//
// Compare figures only within one run.
package bench
